// Waits for a result, maps it, and prints the L2 norm of each tensor: all that a reader needs, in one file.
//
//   gemmad_reader_example SOCKET JOB_OR_NAME

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "comm/reader/gemmad_reader.h"

namespace {

template <typename T>
T element(const gemmad::Reader::Tensor& tensor, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(tensor.data) + index * sizeof(T), sizeof(T));
  return value;
}

double from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

double from_f16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  double magnitude = 0;
  if (exponent == 0x1f) {
    magnitude = fraction == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -24);
  } else {
    magnitude = std::ldexp(fraction + 0x400, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

double value_at(const gemmad::Reader::Tensor& tensor, std::size_t index) {
  if (tensor.dtype == "F32") return element<float>(tensor, index);
  if (tensor.dtype == "BF16") return from_bf16(element<std::uint16_t>(tensor, index));
  if (tensor.dtype == "F16") return from_f16(element<std::uint16_t>(tensor, index));
  if (tensor.dtype == "I32") return element<std::int32_t>(tensor, index);
  return element<std::uint8_t>(tensor, index);
}

double norm(const gemmad::Reader::Tensor& tensor) {
  std::size_t num_elements = 1;
  for (const std::int64_t extent : tensor.shape)
    num_elements *= static_cast<std::size_t>(extent);
  double sum = 0;
  for (std::size_t i = 0; i < num_elements; ++i) {
    const double value = value_at(tensor, i);
    sum += value * value;
  }
  return std::sqrt(sum);
}

std::string text(const std::vector<std::int64_t>& shape) {
  std::string out;
  for (const std::int64_t extent : shape)
    out += (out.empty() ? "" : " x ") + std::to_string(extent);
  return "[" + out + "]";
}

gemmad::Reader::Result acquire(gemmad::Reader& reader, const std::string& job_or_name) {
  const bool is_job =
      !job_or_name.empty() && job_or_name.size() < 20 &&
      std::all_of(job_or_name.begin(), job_or_name.end(), [](char c) { return c >= '0' && c <= '9'; });
  constexpr std::chrono::seconds kTimeout{60};
  return is_job ? reader.acquire(std::stoull(job_or_name), kTimeout)
                : reader.acquire_name(job_or_name, kTimeout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s SOCKET JOB_OR_NAME\n", argv[0]);
    return 2;
  }
  try {
    auto reader = gemmad::Reader::connect(argv[1], std::chrono::seconds(10));
    const auto result = acquire(reader, argv[2]);
    std::printf("job %llu on rank %d, %zu prompts\n", static_cast<unsigned long long>(result.job()),
                reader.rank(), result.prompts().size());
    for (std::size_t i = 0; i < result.prompts().size(); ++i) {
      const auto& prompt = result.prompts()[i];
      if (!prompt.ok) {
        std::printf("prompt %zu: %s: %s\n", i, prompt.error_code.c_str(), prompt.error_message.c_str());
        continue;
      }
      std::printf("prompt %zu: %lld tokens%s\n", i, static_cast<long long>(prompt.num_tokens),
                  prompt.truncated ? ", truncated" : "");
      for (const auto& tensor : prompt.tensors) {
        std::printf("  %-20s %-4s %-14s norm %.6g\n", tensor.name.c_str(), tensor.dtype.c_str(),
                    text(tensor.shape).c_str(), norm(tensor));
      }
    }
    return 0;
  } catch (const gemmad::ReaderError& error) {
    std::fprintf(stderr, "%s: %s\n", error.code().c_str(), error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}
