#include "daemon/image/exif.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gemmad {
namespace {

constexpr std::size_t kEntryBytes = 12;
constexpr std::uint64_t kOrientationTag = 0x0112;
constexpr std::uint64_t kShortType = 3;

/// Numbers of a TIFF structure, in its byte order; 0 beyond its end.
class TiffBytes {
 public:
  explicit TiffBytes(std::span<const std::byte> bytes)
      : bytes_(bytes), little_endian_(!bytes.empty() && bytes[0] == std::byte{'I'}) {}

  std::uint64_t number(std::uint64_t at, std::size_t size) const {
    if (at > bytes_.size() || bytes_.size() - at < size) return 0;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t place = little_endian_ ? size - 1 - i : i;
      value = value << 8 | std::to_integer<std::uint64_t>(bytes_[at + place]);
    }
    return value;
  }

  bool begins_well() const {
    return bytes_.size() >= 8 && bytes_[0] == bytes_[1] && (little_endian_ || bytes_[0] == std::byte{'M'}) &&
           number(2, 2) == 42;
  }

 private:
  std::span<const std::byte> bytes_;
  bool little_endian_;
};

/// The image with its axes exchanged; pixel_of(y, x), in the new axes, is a place in the old ones.
template <typename PixelOf>
RgbImage transposed(const RgbImage& image, const PixelOf& pixel_of) {
  RgbImage out{image.width, image.height, std::vector<std::uint8_t>(image.pixels.size())};
  std::uint8_t* to = out.pixels.data();
  for (std::int64_t y = 0; y < out.height; ++y) {
    for (std::int64_t x = 0; x < out.width; ++x, to += 3)
      std::memcpy(to, image.pixels.data() + 3 * pixel_of(y, x), 3);
  }
  return out;
}

}  // namespace

int exif_orientation(std::span<const std::byte> tiff) {
  const TiffBytes bytes(tiff);
  if (!bytes.begins_well()) return 1;
  const std::uint64_t directory = bytes.number(4, 4);
  const std::uint64_t num_entries = bytes.number(directory, 2);  // at most 65535
  for (std::uint64_t i = 0; i < num_entries; ++i) {
    const std::uint64_t entry = directory + 2 + i * kEntryBytes;
    if (bytes.number(entry, 2) != kOrientationTag) continue;
    const std::uint64_t value = bytes.number(entry + 8, 2);
    const bool is_one_short = bytes.number(entry + 2, 2) == kShortType && bytes.number(entry + 4, 4) == 1;
    return is_one_short && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

RgbImage turn_upright(RgbImage image, int orientation) {
  const std::int64_t height = image.height;
  const std::int64_t width = image.width;
  if (orientation == 3) {
    // Backwards, and then each pixel's channels once more.
    std::reverse(image.pixels.begin(), image.pixels.end());
    for (std::size_t i = 0; i + 2 < image.pixels.size(); i += 3)
      std::swap(image.pixels[i], image.pixels[i + 2]);
  } else if (orientation == 6) {
    return transposed(image, [=](std::int64_t y, std::int64_t x) { return (height - 1 - x) * width + y; });
  } else if (orientation == 8) {
    return transposed(image, [=](std::int64_t y, std::int64_t x) { return x * width + (width - 1 - y); });
  }
  return image;
}

}  // namespace gemmad
