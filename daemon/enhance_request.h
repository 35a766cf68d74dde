// What clients ask of enhancement: a prompt to be rewritten, and how.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "daemon/model/generation/sampling.h"

namespace gemmad {

/// Pixels as they came: [H, W, 3], RGB, one byte each, in base64. Its length fits the size, its letters are
/// unchecked.
struct RawImage {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::string base64;
};

/// The bytes of a PNG or JPEG file in base64, unchecked.
struct ImageFile {
  std::string base64;
};

using ImageInput = std::variant<RawImage, ImageFile>;

struct EnhanceOptions {
  std::optional<ImageInput> image;
  std::optional<std::string> system_prompt;    // otherwise the daemon's own, with or without an image
  std::optional<std::int64_t> max_new_tokens;  // otherwise Enhancement's default, or what the context leaves
  SamplingParams sampling;
  bool cleans = true;
  bool guards_circles = true;
  bool streams = false;
};

struct EnhanceRequest {
  std::string prompt;
  EnhanceOptions options;
  std::string name;          // empty: none
  std::int64_t readers = 0;  // of each place; 0: as many as the segments are made for
  std::optional<std::int64_t> deadline_ms;
};

}  // namespace gemmad
