#include "daemon/image/exif.h"

#include <random>
#include <string_view>

#include "tests/daemon/image/image_testing.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

using namespace std::string_view_literals;

int orientation_of(std::string_view tiff) {
  return exif_orientation(std::as_bytes(std::span(tiff)));
}

constexpr std::string_view kBig =
    "MM\0*\0\0\0\x08\0\x02\x01\x0f\0\x02\0\0\0\x04"
    "abc\0\x01\x12\0\x03\0\0\0\x01\0\x06\0\0"sv;
constexpr std::string_view kLittle = "II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x08\0\0\0"sv;

}  // namespace

TEST_CASE("The orientation is found in both byte orders") {
  CHECK(orientation_of(kBig) == 6);
  CHECK(orientation_of(kLittle) == 8);
}

TEST_CASE("Data that ends early, points elsewhere or has no such entry means upright") {
  for (std::size_t size = 0; size + 2 < kBig.size(); ++size)
    CHECK(orientation_of(kBig.substr(0, size)) == 1);
  std::string elsewhere(kLittle);
  elsewhere.replace(4, 4, "\xff\xff\xff\xff"sv);
  CHECK(orientation_of(elsewhere) == 1);
  std::string many(kLittle);
  many.replace(8, 4, "\xff\xff\x13\x01"sv);
  CHECK(orientation_of(many) == 1);
}

TEST_CASE("Orientations out of range, of another type or in a list mean upright") {
  for (const auto& [at, byte] : {std::pair{18, '\x09'}, std::pair{18, '\0'}, std::pair{12, '\x04'},
                                 std::pair{14, '\x02'}, std::pair{0, 'M'}, std::pair{2, '+'}}) {
    std::string changed(kLittle);
    changed[static_cast<std::size_t>(at)] = byte;
    CHECK(orientation_of(changed) == 1);
  }
}

TEST_CASE("Any bytes give an orientation from 1 to 8") {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(kBig);
    for (int i = 0; i < 3; ++i)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    const int orientation = orientation_of(bytes);
    REQUIRE((orientation >= 1 && orientation <= 8));
  }
}

TEST_CASE("A picture is turned as the spec says, and mirrored ones are not") {
  // a b c
  // d e f
  const auto letters = [](std::string_view text, std::int64_t height, std::int64_t width) {
    RgbImage image{height, width, {}};
    for (const char letter : text)
      for (int c = 0; c < 3; ++c)
        image.pixels.push_back(static_cast<std::uint8_t>(letter + 32 * c));
    return image;
  };
  const auto check = [&](int orientation, std::string_view text, std::int64_t height, std::int64_t width) {
    const RgbImage turned = turn_upright(letters("abcdef", 2, 3), orientation);
    CHECK(turned.height == height);
    CHECK(turned.width == width);
    CHECK(turned.pixels == letters(text, height, width).pixels);
  };
  check(3, "fedcba", 2, 3);
  check(6, "daebfc", 3, 2);
  check(8, "cfbead", 3, 2);
  for (const int orientation : {1, 2, 4, 5, 7})
    check(orientation, "abcdef", 2, 3);
}

}  // namespace gemmad
