// What a safetensors file says about itself.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace gemmad {

struct MetadataOfFile {
  enum class Kind : std::uint8_t {
    kMissing,  // there is no such file
    kSpoiled,  // it is no safetensors file, or has not the bytes that its header tells of
    kWhole,
  };
  Kind kind = Kind::kMissing;
  std::map<std::string, std::string> metadata;  // of a whole one
};

/// Reads the header alone. Blocks on the disk. Throws SystemError when the file is there and cannot be read.
MetadataOfFile read_metadata(const std::filesystem::path& file);

}  // namespace gemmad
