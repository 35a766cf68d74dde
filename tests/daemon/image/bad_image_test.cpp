// Files that are not what they should be: refused with a reason, and without memory for what they promise.
#include <sys/resource.h>

#include <algorithm>

#include "tests/daemon/image/image_testing.h"
#include "tests/support/catch.h"
#include "tests/support/tensor_file.h"

namespace gemmad {
namespace {

using test::Bytes;
using test::image_file;
using test::refusal;

bool refused(const Bytes& file, const std::string& reason, const ImageLimits& limits = {}) {
  const std::string text = refusal(file, limits);
  INFO(text);
  CHECK(text.find(reason) != std::string::npos);
  return text != "accepted";
}

// Overwrites big-endian numbers of `size` bytes.
void put(Bytes& file, std::size_t at, std::uint32_t value, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i)
    file[at + i] = static_cast<std::byte>(value >> (8 * (size - 1 - i)) & 0xFF);
}

Bytes png_of_size(std::uint32_t width, std::uint32_t height) {
  Bytes file = image_file("rgb.png");
  put(file, 16, width, 4);
  put(file, 20, height, 4);
  return file;
}

Bytes jpeg_of_size(const std::string& name, std::uint32_t width, std::uint32_t height) {
  Bytes file = image_file(name);
  const std::byte marks[] = {std::byte{0xFF}, name == "progressive.jpg" ? std::byte{0xC2} : std::byte{0xC0}};
  const auto frame = std::search(file.begin(), file.end(), std::begin(marks), std::end(marks));
  REQUIRE(frame != file.end());
  const auto at = static_cast<std::size_t>(frame - file.begin());
  put(file, at + 5, height, 2);
  put(file, at + 7, width, 2);
  return file;
}

std::int64_t peak_kib() {
  rusage usage{};
  REQUIRE(getrusage(RUSAGE_SELF, &usage) == 0);
  return usage.ru_maxrss;
}

}  // namespace

TEST_CASE("An image of 0 bytes is refused") {
  CHECK(refused({}, "0 bytes"));
}

TEST_CASE("Bytes that are neither PNG nor JPEG are refused with their beginning") {
  CHECK(refused(Bytes(100, std::byte{0x47}), "47 47 47 47"));
  CHECK(refused(Bytes(1, std::byte{0xFF}), "neither PNG nor JPEG: it begins with the bytes ff"));
}

TEST_CASE("A file that ends anywhere before its end is refused") {
  for (const char* name : {"rgb.png", "rgb_interlaced.png", "palette.png", "exif_6.png", "rgb_profile.png",
                           "rgb.jpg", "progressive.jpg", "cmyk.jpg", "grey.jpg", "exif_6.jpg"}) {
    const Bytes file = image_file(name);
    REQUIRE(refusal(file) == "accepted");
    for (std::size_t size = 0; size < file.size(); ++size) {
      INFO(name << " cut after " << size << " bytes");
      REQUIRE(refusal(std::span(file).first(size)) != "accepted");
    }
  }
}

TEST_CASE("A JPEG file whose end was cut out and the end mark put back is refused") {
  for (const char* name : {"rgb.jpg", "cmyk.jpg"}) {
    const Bytes file = image_file(name);
    Bytes half(file.begin(), file.end() - static_cast<std::ptrdiff_t>(file.size() / 8));
    half.insert(half.end(), {std::byte{0xFF}, std::byte{0xD9}});
    CHECK(refused(half, "cannot be read"));
  }
}

TEST_CASE("A PNG file with a flipped bit in its pixels is refused") {
  Bytes file = image_file("rgb.png");
  file[file.size() / 2] ^= std::byte{1};
  CHECK(refused(file, "cannot be read"));
}

TEST_CASE("A size of nothing is refused") {
  CHECK(refused(png_of_size(0, 29), "0 x 29"));
  CHECK(refused(jpeg_of_size("rgb.jpg", 37, 0), "cannot be read"));
}

TEST_CASE("Limits refuse what is beyond them and take what is on them") {
  const Bytes file = image_file("rgb.png");
  ImageLimits limits;
  limits.max_file_bytes = static_cast<std::int64_t>(file.size());
  limits.max_side = 37;
  limits.max_pixels = 37 * 29;
  CHECK(refusal(file, limits) == "accepted");
  CHECK(refusal(image_file("rgb.jpg"), {.max_side = 37}) == "accepted");

  ImageLimits less = limits;
  less.max_file_bytes -= 1;
  CHECK(refused(file, "has 524 bytes, but at most 523", less));
  less = limits;
  less.max_side = 36;
  CHECK(refused(file, "37 x 29 pixels, but a side may have at most 36", less));
  less = limits;
  less.max_pixels = 37 * 29 - 1;
  CHECK(refused(file, "37 x 29 pixels, but at most 1072 pixels", less));
  less.max_file_bytes = 1 << 20;
  CHECK(refused(image_file("rgb.jpg"), "37 x 29 pixels, but at most 1072 pixels", less));
}

TEST_CASE("What a header promises beyond the limits is refused before memory is taken for it") {
  const std::int64_t before = peak_kib();
  CHECK(refused(png_of_size(60000, 60000), "60000 x 60000 pixels, but a side may have at most 32768"));
  CHECK(refused(png_of_size(30000, 30000), "30000 x 30000 pixels, but at most 64000000 pixels"));
  CHECK(refused(png_of_size(0x7FFFFFFF, 0x7FFFFFFF), "at most 32768"));
  CHECK(refused(png_of_size(0xFFFFFFFF, 1), "at most 32768"));
  for (const char* name : {"rgb.jpg", "progressive.jpg"}) {
    CHECK(
        refused(jpeg_of_size(name, 65500, 65500), "65500 x 65500 pixels, but a side may have at most 32768"));
    CHECK(refused(jpeg_of_size(name, 30000, 30000), "30000 x 30000 pixels, but at most 64000000 pixels"));
  }
  CHECK(peak_kib() - before < 8 * 1024);
}

TEST_CASE("Profiles and texts that unpack to very much are not unpacked") {
  const TensorFile expected(test::image_folder() / "expected.safetensors");
  const std::int64_t before = peak_kib();
  for (const char* name : {"profile_bomb.png", "text_bomb.png"}) {
    INFO(name);
    CHECK(test::largest_difference(decode_image(image_file(name), {}), expected.get(name)) == 0);
  }
  CHECK(peak_kib() - before < 16 * 1024);  // each unpacks to 40 MB
}

TEST_CASE("A JPEG file of very many scans is refused") {
  CHECK(refused(image_file("many_scans.jpg"), "more than 50 scans"));
}

TEST_CASE("Raw pixels of another number than the size says are refused") {
  const Bytes pixels(3 * 4 * 5);
  CHECK_NOTHROW(raw_image(pixels, 4, 5, {}));
  CHECK_THROWS_AS(raw_image(pixels, 4, 4, {}), ImageError);
  CHECK_THROWS_AS(raw_image(pixels, 0, 5, {}), ImageError);
  CHECK_THROWS_AS(raw_image(pixels, -4, -5, {}), ImageError);
  CHECK_THROWS_AS(raw_image(pixels, std::int64_t{1} << 62, 4, {}), ImageError);
}

}  // namespace gemmad
