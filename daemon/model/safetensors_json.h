// The JSON of a safetensors header, read event by event: no tree is built of what is only checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace gemmad {

/// One tensor as the header writes it; nothing but the JSON's own form has been checked.
struct RawTensorEntry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> offsets;
};

/// The whole header.
struct RawSafetensorsHeader {
  std::vector<RawTensorEntry> tensors;
  std::map<std::string, std::string, std::less<>> metadata;
};

/// Reads {"NAME": {"dtype": STRING, "shape": [INTEGERS], "data_offsets": [INTEGERS]}, ..., "__metadata__":
/// {STRING: STRING}}. Throws ModelFileError, which begins with `source_name`, for bad JSON, another form,
/// nesting, repeated or missing fields, repeated tensor names, lists longer than any shape.
RawSafetensorsHeader parse_safetensors_json(std::span<const std::byte> json, const std::string& source_name);

}  // namespace gemmad
