// Image files, and pictures made of numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "daemon/image/decode_image.h"
#include "kernels/base/tensor.h"

namespace gemmad::test {

using Bytes = std::vector<std::byte>;

inline std::filesystem::path image_folder() {
  return std::filesystem::path(GEMMAD_TEST_DATA) / "images";
}

/// A file of tests/data/images/files.
inline Bytes image_file(const std::string& name) {
  std::ifstream file(image_folder() / "files" / name, std::ios::binary);
  if (!file) throw std::runtime_error("no image " + name);
  const std::vector<char> chars{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(chars));
  return {bytes.begin(), bytes.end()};
}

/// The pixels that seeded_pixels() of tests/data/images/generate.py makes.
inline RgbImage seeded_image(std::int64_t height, std::int64_t width, std::uint32_t seed = 1) {
  RgbImage image{height, width, std::vector<std::uint8_t>(static_cast<std::size_t>(height * width) * 3)};
  for (std::uint8_t& level : image.pixels) {
    seed = seed * 1664525 + 1013904223;
    level = static_cast<std::uint8_t>(seed >> 24);
  }
  return image;
}

/// The largest difference of two levels, or -1 where the sizes differ. `expected` is [H, W, 3], U8.
inline int largest_difference(const RgbImage& image, ConstTensorView expected) {
  if (expected.shape.rank() != 3 || expected.shape[0] != image.height || expected.shape[1] != image.width ||
      image.pixels.size() != static_cast<std::size_t>(image.height * image.width) * 3)
    return -1;
  const auto* levels = static_cast<const std::uint8_t*>(expected.data);
  int largest = 0;
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    largest = std::max(largest, std::abs(int{image.pixels[i]} - int{levels[i]}));
  return largest;
}

/// What ImageError says of the file, or "accepted".
inline std::string refusal(std::span<const std::byte> file, const ImageLimits& limits = {}) {
  try {
    decode_image(file, limits);
  } catch (const ImageError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace gemmad::test
