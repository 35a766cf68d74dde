#include "daemon/image/decode_image.h"

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/image/exif.h"
#include "daemon/image/jpeg_file.h"
#include "daemon/image/png_file.h"
#include "daemon/image/to_rgb.h"

namespace gemmad {
namespace {

FileImage decode_file(std::span<const std::byte> file, const ImageLimits& limits) {
  if (is_png(file)) return decode_png(file, limits);
  if (is_jpeg(file)) return decode_jpeg(file, limits);
  std::string begin;
  for (const std::byte byte : file.first(std::min<std::size_t>(file.size(), 4))) {
    constexpr char kHex[] = "0123456789abcdef";
    const auto value = std::to_integer<unsigned>(byte);
    begin += {' ', kHex[value >> 4], kHex[value & 15]};
  }
  throw ImageError("the image is neither PNG nor JPEG: it begins with the bytes" + begin +
                   ": convert it to one of the two");
}

}  // namespace

RgbImage decode_image(std::span<const std::byte> file, const ImageLimits& limits) {
  if (file.empty()) throw ImageError("the image has 0 bytes: send a PNG or JPEG file");
  if (file.size() > static_cast<std::size_t>(std::max<std::int64_t>(limits.max_file_bytes, 0))) {
    throw ImageError("the image has " + std::to_string(file.size()) + " bytes, but at most " +
                     std::to_string(limits.max_file_bytes) + " are taken: send a smaller one");
  }
  FileImage image = decode_file(file, limits);
  const int orientation = image.orientation;
  return turn_upright(to_rgb(std::move(image)), orientation);
}

RgbImage raw_image(std::span<const std::byte> pixels, std::int64_t height, std::int64_t width,
                   const ImageLimits& limits) {
  check_size(height, width, limits);
  const auto expected = static_cast<std::size_t>(height * width) * 3;
  if (pixels.size() != expected) {
    throw ImageError("the raw image has " + std::to_string(pixels.size()) + " bytes, but " +
                     std::to_string(width) + " x " + std::to_string(height) + " pixels of RGB have " +
                     std::to_string(expected) + ": send 3 bytes a pixel, row by row");
  }
  RgbImage image{height, width, std::vector<std::uint8_t>(expected)};
  std::transform(pixels.begin(), pixels.end(), image.pixels.begin(), std::to_integer<std::uint8_t>);
  return image;
}

}  // namespace gemmad
