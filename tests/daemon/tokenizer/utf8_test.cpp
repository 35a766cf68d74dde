#include "daemon/tokenizer/utf8.h"

#include <string>

#include "tests/support/catch.h"

using gemmad::append_utf8;
using gemmad::is_valid_utf8;
using gemmad::read_code_point;
using gemmad::valid_utf8_prefix;

TEST_CASE("Every Unicode scalar value survives writing, checking and reading", "[utf8]") {
  bool all = true;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, c);
    std::size_t position = 0;
    all = all && is_valid_utf8(text) && read_code_point(text, position) == c && position == text.size();
  }
  CHECK(all);
}

TEST_CASE("Ill-formed UTF-8 is refused wherever it stands", "[utf8]") {
  const std::string bad =
      GENERATE(as<std::string>{}, "\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2\x41", "\xE0\x80\x80",
               "\xE0\x9F\xBF", "\xED\xA0\x80", "\xED\xBF\xBF", "\xE2\x82", "\xE2\x41\x81", "\xF0\x80\x80\x80",
               "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF0\x9F\x99", "\xF5\x80\x80\x80", "\xFE", "\xFF",
               "\xED\xA0\xBD\xED\xB8\x80");
  for (std::size_t before = 0; before < 20; ++before) {
    const std::string text = std::string(before, 'x') + bad;
    CAPTURE(before);
    CHECK_FALSE(is_valid_utf8(text));
    CHECK(valid_utf8_prefix(text) == before);
    CHECK_FALSE(is_valid_utf8(text + "yyyyyyyyyyyyyyyy"));
  }
}

TEST_CASE("NUL and the ends of the ranges are valid", "[utf8]") {
  CHECK(is_valid_utf8(""));
  CHECK(is_valid_utf8(std::string(17, '\0')));
  CHECK(
      is_valid_utf8("\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF\xF0\x90\x80\x80\xF4"
                    "\x8F\xBF\xBF"));
}
