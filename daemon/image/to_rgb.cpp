#include "daemon/image/to_rgb.h"

#include <lcms2.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace gemmad {
namespace {

template <auto kClose>
struct Closer {
  void operator()(void* handle) const { kClose(handle); }
};
struct ContextCloser {
  void operator()(cmsContext context) const { cmsDeleteContext(context); }
};
using Context = std::unique_ptr<std::remove_pointer_t<cmsContext>, ContextCloser>;
using Profile = std::unique_ptr<void, Closer<&cmsCloseProfile>>;
using Transform = std::unique_ptr<void, Closer<&cmsDeleteTransform>>;

struct ColourKind {
  cmsColorSpaceSignature space;
  cmsUInt32Number format;
};

ColourKind kind_of(std::int64_t channels) {
  switch (channels) {
    case 1:
      return {cmsSigGrayData, TYPE_GRAY_8};
    case 4:
      return {cmsSigCmykData, TYPE_CMYK_8};
    default:
      return {cmsSigRgbData, TYPE_RGB_8};
  }
}

std::size_t num_pixels(const FileImage& image) {
  return static_cast<std::size_t>(image.height * image.width);
}

/// [H, W, 3], or nothing where the profile cannot be used.
std::optional<std::vector<std::uint8_t>> convert_by_profile(const FileImage& image) {
  const ColourKind kind = kind_of(image.channels);
  // A context of its own: lcms2's global one is shared with whatever else the process has loaded.
  const Context context(cmsCreateContext(nullptr, nullptr));
  if (!context) return std::nullopt;
  const Profile from(cmsOpenProfileFromMemTHR(context.get(), image.colour_profile.data(),
                                              static_cast<cmsUInt32Number>(image.colour_profile.size())));
  const Profile to(cmsCreate_sRGBProfileTHR(context.get()));
  if (!from || !to || cmsGetColorSpace(from.get()) != kind.space) return std::nullopt;
  const Transform transform(cmsCreateTransformTHR(context.get(), from.get(), kind.format, to.get(),
                                                  TYPE_RGB_8, INTENT_PERCEPTUAL, 0));
  if (!transform) return std::nullopt;
  std::vector<std::uint8_t> pixels(num_pixels(image) * 3);
  const auto width = static_cast<std::size_t>(image.width);
  for (std::size_t y = 0; y < static_cast<std::size_t>(image.height); ++y) {
    cmsDoTransform(transform.get(),
                   image.samples.data() + y * width * static_cast<std::size_t>(image.channels),
                   pixels.data() + y * width * 3, static_cast<cmsUInt32Number>(width));
  }
  return pixels;
}

std::vector<std::uint8_t> expand_grey(const std::vector<std::uint8_t>& grey) {
  std::vector<std::uint8_t> pixels(grey.size() * 3);
  for (std::size_t i = 0; i < grey.size(); ++i)
    std::fill_n(pixels.begin() + static_cast<std::ptrdiff_t>(3 * i), 3, grey[i]);
  return pixels;
}

/// ink * light / 255, rounded.
int scaled(int ink, int light) {
  const int product = ink * light + 128;
  return (product + (product >> 8)) >> 8;
}

std::vector<std::uint8_t> mix_inks(const std::vector<std::uint8_t>& inks) {
  std::vector<std::uint8_t> pixels(inks.size() / 4 * 3);
  for (std::size_t i = 0; 4 * i < inks.size(); ++i) {
    const int light = 255 - inks[4 * i + 3];
    for (std::size_t c = 0; c < 3; ++c)
      pixels[3 * i + c] = static_cast<std::uint8_t>(light - scaled(inks[4 * i + c], light));
  }
  return pixels;
}

std::vector<std::uint8_t> convert_plainly(FileImage image) {
  if (image.channels == 1) return expand_grey(image.samples);
  if (image.channels == 4) return mix_inks(image.samples);
  return std::move(image.samples);
}

}  // namespace

RgbImage to_rgb(FileImage image) {
  RgbImage out{image.height, image.width, {}};
  if (!image.colour_profile.empty()) {
    if (auto pixels = convert_by_profile(image)) {
      out.pixels = std::move(*pixels);
      return out;
    }
  }
  out.pixels = convert_plainly(std::move(image));
  return out;
}

}  // namespace gemmad
