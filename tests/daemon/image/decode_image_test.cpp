#include "daemon/image/decode_image.h"

#include <jpeglib.h>

#include <array>
#include <cstdlib>
#include <memory>

#include "tests/daemon/image/image_testing.h"
#include "tests/support/catch.h"
#include "tests/support/tensor_file.h"

namespace gemmad {
namespace {

using test::image_file;
using test::largest_difference;

// libpng and zlib give back what was stored. The JPEG standard leaves a level or so to each decoder's inverse
// DCT and another one to the enlarging of colour: those of libjpeg-turbo 2 and 3 agree, others may not. lcms2
// works in 16 bits, but takes shortcuts for 8 that differ between its versions.
constexpr int kPngLevels = 0;
constexpr int kJpegLevels = 2;
constexpr int kProfileLevels = 2;

void check_as_pillow(const std::string& name, int levels) {
  const TensorFile expected(test::image_folder() / "expected.safetensors");
  const RgbImage image = decode_image(image_file(name), {});
  INFO(name);
  const int difference = largest_difference(image, expected.get(name));
  CHECK(difference >= 0);
  CHECK(difference <= levels);
}

struct Ink {
  std::uint8_t c, m, y, k;
};

// A JPEG file of one colour. libjpeg stores inks as they are given: inverted, as Adobe does, here by the
// caller.
test::Bytes one_colour_jpeg(Ink inverted, J_COLOR_SPACE space) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = 16;
  info.image_height = 16;
  info.input_components = 4;
  info.in_color_space = JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_colorspace(&info, space);
  jpeg_set_quality(&info, 100, TRUE);
  jpeg_start_compress(&info, TRUE);
  std::array<std::uint8_t, 64> row{};
  for (std::size_t i = 0; i < row.size(); i += 4) {
    row[i] = inverted.c;
    row[i + 1] = inverted.m;
    row[i + 2] = inverted.y;
    row[i + 3] = inverted.k;
  }
  JSAMPROW pointer = row.data();
  while (info.next_scanline < info.image_height)
    jpeg_write_scanlines(&info, &pointer, 1);
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const std::unique_ptr<unsigned char, decltype(&std::free)> owner(bytes, &std::free);
  const auto view = std::as_bytes(std::span(bytes, size));
  return {view.begin(), view.end()};
}

}  // namespace

TEST_CASE("PNG files of every kind have Pillow's pixels") {
  for (const char* name :
       {"rgb.png", "rgba.png", "grey.png", "grey_alpha.png", "palette.png", "palette_transparent.png",
        "palette_profile.png", "grey_1_bit.png", "grey_2_bits.png", "grey_4_bits.png",
        "rgb_transparent_colour.png", "grey_16_bits.png", "rgb_16_bits.png", "rgba_16_bits.png",
        "grey_alpha_16_bits.png", "exif_6.png", "one.png", "line.png"})
    check_as_pillow(name, kPngLevels);
}

TEST_CASE("Interlaced PNG files have the pixels of the others") {
  for (const char* name : {"rgb_interlaced.png", "grey_alpha_interlaced.png", "palette_interlaced.png",
                           "rgb_16_bits_interlaced.png"})
    check_as_pillow(name, kPngLevels);
}

TEST_CASE("JPEG files in grey, YCbCr and CMYK have Pillow's pixels") {
  for (const char* name : {"rgb.jpg", "rgb_444.jpg", "grey.jpg", "cmyk.jpg", "progressive.jpg"})
    check_as_pillow(name, kJpegLevels);
}

TEST_CASE("A colour profile is applied to RGB, grey and CMYK") {
  for (const char* name : {"rgb_profile.png", "rgba_profile.png", "grey_profile.png"})
    check_as_pillow(name, kProfileLevels);
  for (const char* name : {"rgb_profile.jpg", "grey_profile.jpg", "cmyk_profile.jpg"})
    check_as_pillow(name, kJpegLevels + kProfileLevels);
}

TEST_CASE("A profile that is broken or for other colours is left aside") {
  for (const char* name : {"broken_profile.jpg", "profile_of_other_colours.jpg"}) {
    check_as_pillow(name, kJpegLevels);
    CHECK(decode_image(image_file(name), {}).pixels == decode_image(image_file("rgb.jpg"), {}).pixels);
  }
}

TEST_CASE("Photographs stand upright, and mirrored ones stay as they are") {
  for (int orientation = 1; orientation <= 8; ++orientation)
    check_as_pillow("exif_" + std::to_string(orientation) + ".jpg", kJpegLevels);
}

TEST_CASE("CMYK and YCCK files have inverted inks, mixed with black") {
  // Inks of 55, 105, 155 and 51 of 255: light is 204, a colour 204 - 204 * ink / 255.
  const Ink inverted{200, 150, 100, 204};
  for (const J_COLOR_SPACE space : {JCS_CMYK, JCS_YCCK}) {
    const RgbImage image = decode_image(one_colour_jpeg(inverted, space), {});
    REQUIRE(image.pixels.size() == 16 * 16 * 3);
    const int expected[] = {160, 120, 80};
    // Each ink is within a level after the quantisation of quality 100, and within another one through YCCK.
    for (std::size_t i = 0; i < image.pixels.size(); ++i)
      REQUIRE(std::abs(image.pixels[i] - expected[i % 3]) <= 2);
  }
}

TEST_CASE("Raw pixels are taken as they are") {
  const RgbImage image = test::seeded_image(3, 5);
  const RgbImage taken = raw_image(std::as_bytes(std::span(image.pixels)), 3, 5, {});
  CHECK(taken.height == 3);
  CHECK(taken.width == 5);
  CHECK(taken.pixels == image.pixels);
}

}  // namespace gemmad
