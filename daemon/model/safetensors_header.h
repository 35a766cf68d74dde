// The header of a safetensors file: a bounded, pure parser.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/model_file_error.h"
#include "kernels/base/tensor.h"

namespace gemmad {

/// The longest header that is read. The format's own limit.
inline constexpr std::uint64_t kMaxSafetensorsHeaderBytes = 100ull << 20;
/// The most extents that a shape may have.
inline constexpr std::size_t kMaxSafetensorsRank = 8;

/// An element type by its name in the file.
struct SafetensorsDType {
  std::string_view name;       // of static storage
  std::size_t size_bits = 0;   // of one element
  std::optional<DType> dtype;  // none for types that this program only skips
};

struct SafetensorsEntry {
  std::string name;
  SafetensorsDType dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // bytes from the start of the file
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;                     // by rising offset
  std::map<std::string, std::string, std::less<>> metadata;  // `__metadata__`, where there is one
};

/// Parses the header of `file`, which is the whole file's bytes; reads no byte of the tensors. When it
/// returns: names differ; every tensor has a known type and exactly the bytes of its shape; the tensors fill
/// the rest of the file in order, without overlap, hole or trailing byte. Throws ModelFileError, which begins
/// with `source_name`, for anything else: too short, header longer than the file or than
/// kMaxSafetensorsHeaderBytes, not JSON or of another form, repeated names or fields, extents that overflow.
/// Empty files, git-LFS pointers and HTML pages are named as such. Memory is bounded by the header's length.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, const std::string& source_name);

}  // namespace gemmad
