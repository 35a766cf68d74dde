// Bytes as a safetensors file: only ModelFileError may come out, and what is accepted lies inside the file.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "daemon/model/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const gemmad::SafetensorsHeader header =
        gemmad::parse_safetensors_header(std::as_bytes(std::span(data, size)), "fuzz");
    std::uint64_t begin = 8;
    for (const gemmad::SafetensorsEntry& tensor : header.tensors) {
      if (tensor.begin < begin || tensor.end < tensor.begin || tensor.end > size) std::abort();
      begin = tensor.end;
    }
  } catch (const gemmad::ModelFileError&) {
  }
  return 0;
}
