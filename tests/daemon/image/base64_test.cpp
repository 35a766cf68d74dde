#include "daemon/image/base64.h"

#include <random>
#include <span>
#include <string>

#include "daemon/image/image.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

std::string decoded(std::string_view text, std::size_t max_bytes = 1000) {
  std::string out;
  for (const std::byte byte : decode_base64(text, max_bytes))
    out += static_cast<char>(byte);
  return out;
}

// Written for this test: bits as text, six at a time.
std::string encoded(std::span<const std::byte> bytes) {
  static constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bits;
  for (const std::byte byte : bytes)
    for (int i = 7; i >= 0; --i)
      bits += (byte >> i & std::byte{1}) != std::byte{} ? '1' : '0';
  std::string out;
  for (std::size_t i = 0; i < bits.size(); i += 6) {
    std::string six = bits.substr(i, 6);
    six.resize(6, '0');
    out += kAlphabet[std::stoi(six, nullptr, 2)];
  }
  while (out.size() % 4 != 0)
    out += '=';
  return out;
}

}  // namespace

TEST_CASE("The examples of RFC 4648 are decoded") {
  CHECK(decoded("").empty());
  CHECK(decoded("Zg==") == "f");
  CHECK(decoded("Zm8=") == "fo");
  CHECK(decoded("Zm9v") == "foo");
  CHECK(decoded("Zm9vYg==") == "foob");
  CHECK(decoded("Zm9vYmE=") == "fooba");
  CHECK(decoded("Zm9vYmFy") == "foobar");
}

TEST_CASE("Bytes of any length come back from their base64") {
  std::mt19937 random(1);
  for (std::size_t size = 0; size < 200; ++size) {
    std::vector<std::byte> bytes(size);
    for (std::byte& byte : bytes)
      byte = static_cast<std::byte>(random());
    CHECK(decode_base64(encoded(bytes), size) == bytes);
  }
}

TEST_CASE("Base64 that is not strict is refused") {
  for (const char* text : {"Zg",   "Zg=",   "Zm8",      "Z",        "=",    "==",        "===",
                           "====", "Zg===", "Zm9v====", "Zg==Zg==", "Z=g=", "Zm9 ",      "Zm9v\nZg==\n12",
                           " Zm9", "Zm-_",  "Zm9v\n",   "Zh==",     "Zm9=", "Zm\xc3\xa9"}) {
    INFO(text);
    CHECK_THROWS_AS(decode_base64(text, 1000), ImageError);
  }
  CHECK_THROWS_AS(decode_base64(std::string_view("Zm9\0", 4), 1000), ImageError);
}

TEST_CASE("Base64 beyond the limit is refused before it is decoded") {
  CHECK(decoded("Zm9v", 3) == "foo");
  CHECK_THROWS_AS(decode_base64("Zm9v", 2), ImageError);
  CHECK(decoded("Zg==", 1) == "f");
  CHECK_THROWS_AS(decode_base64(std::string(4000, '!'), 100), ImageError);
}

}  // namespace gemmad
