#include "daemon/tokenizer/prompt_encoder.h"

#include <stdexcept>
#include <string>

#include "daemon/tokenizer/utf8.h"
#include "tests/daemon/tokenizer/small_tokenizer.h"
#include "tests/support/catch.h"

using namespace gemmad;
using namespace gemmad::test;

namespace {

using Ids = std::vector<std::int32_t>;

Tokenizer make_tokenizer(bool adds_bos) {
  nlohmann::json file = tokenizer_of({"a", "b"}, {});
  if (!adds_bos) file["post_processor"] = nullptr;
  return Tokenizer::parse(file.dump(), "test");
}

std::string all_white_space() {
  std::string out;
  for (char32_t c = 0x09; c <= 0x0D; ++c)
    append_utf8(out, c);
  for (char32_t c = 0x1C; c <= 0x20; ++c)
    append_utf8(out, c);
  for (char32_t c = 0x2000; c <= 0x200A; ++c)
    append_utf8(out, c);
  for (char32_t c : {0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000})
    append_utf8(out, c);
  return out;
}

}  // namespace

TEST_CASE("Text of white space alone is BOS alone", "[prompt]") {
  const bool adds_bos = GENERATE(true, false);
  const Tokenizer tokenizer = make_tokenizer(adds_bos);
  for (const std::string& text : {std::string(), std::string("   "), all_white_space()}) {
    const EncodedPrompt prompt = encode_prompt(tokenizer, text, 1024);
    CHECK(prompt.ids == Ids{kBos});
    CHECK(prompt.num_tokens == 1);
    CHECK_FALSE(prompt.truncated);
  }
}

TEST_CASE("White space is stripped at the ends and kept inside", "[prompt]") {
  const std::string white = all_white_space();
  CHECK(strip_white_space(white + "a" + white + "b" + white) == "a" + white + "b");
}

TEST_CASE("What Python does not call white space stays", "[prompt]") {
  // NUL, U+0008, 000E, 001B, 0021, 0084, 0086, 009F, 180E, 200B, 2060, FEFF, and U+2581 itself.
  for (const char32_t c : {0x00, 0x08, 0x0E, 0x1B, 0x21, 0x84, 0x86, 0x9F, 0x180E, 0x200B, 0x2027, 0x2060,
                           0x3001, 0xFEFF, 0x2581}) {
    std::string text;
    append_utf8(text, c);
    CAPTURE(static_cast<unsigned>(c));
    CHECK(strip_white_space(text) == text);
  }
}

TEST_CASE("Stripping does not heal invalid UTF-8", "[prompt]") {
  const Tokenizer tokenizer = make_tokenizer(true);
  for (const char* text :
       {"\xE3\x80", "a\xE2\x80", " \x80 ", "\x80\x80\x80", "\xC2", "\xF0\xE3\x80\x80", "\xA0"}) {
    CHECK_FALSE(is_valid_utf8(strip_white_space(text)));
    CHECK_THROWS_AS(encode_prompt(tokenizer, text, 1024), TokenizerError);
  }
}

TEST_CASE("A prompt is cut behind max_tokens, never its BOS", "[prompt]") {
  const bool adds_bos = GENERATE(true, false);
  const Tokenizer tokenizer = make_tokenizer(adds_bos);
  for (const std::int64_t num_tokens : {1023, 1024, 1025, 5000}) {
    CAPTURE(num_tokens);
    const std::string text(static_cast<std::size_t>(num_tokens - 1), 'a');
    const EncodedPrompt prompt = encode_prompt(tokenizer, text, 1024);
    CHECK(prompt.num_tokens == num_tokens);
    CHECK(prompt.truncated == (num_tokens > 1024));
    CHECK(static_cast<std::int64_t>(prompt.ids.size()) == std::min<std::int64_t>(num_tokens, 1024));
    CHECK(prompt.ids.front() == kBos);
    CHECK(prompt.ids[1] == kFirstLetter);
  }
  CHECK(encode_prompt(tokenizer, "ab", 1).ids == Ids{kBos});
}

TEST_CASE("A typed <bos> is a second one only where the tokenizer adds the first", "[prompt]") {
  CHECK(encode_prompt(make_tokenizer(true), "<bos>a", 9).ids == Ids{kBos, kBos, kFirstLetter});
  CHECK(encode_prompt(make_tokenizer(false), "<bos>a", 9).ids == Ids{kBos, kFirstLetter});
}

TEST_CASE("No room for BOS is the caller's mistake", "[prompt]") {
  CHECK_THROWS_AS(encode_prompt(make_tokenizer(true), "a", 0), std::invalid_argument);
}
