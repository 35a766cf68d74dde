// The input as a tokenizer.json, and as text to encode. Only TokenizerError may come out, and ids only in
// range.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "daemon/tokenizer/prompt_encoder.h"
#include "daemon/tokenizer/tokenizer.h"
#include "tests/daemon/tokenizer/small_tokenizer.h"

namespace {

using gemmad::Tokenizer;

void encode(const Tokenizer& tokenizer, std::string_view text) {
  try {
    for (const std::int32_t id : gemmad::encode_prompt(tokenizer, text, 64).ids) {
      if (id < 0 || static_cast<std::size_t>(id) >= tokenizer.vocab_size() || tokenizer.piece(id).empty())
        std::abort();
    }
  } catch (const gemmad::TokenizerError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Tokenizer fixed = Tokenizer::parse(gemmad::test::small_tokenizer().dump(), "fixed");
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  encode(fixed, input);
  try {
    const Tokenizer tokenizer = Tokenizer::parse(input, "input");
    encode(tokenizer,
           " abc the \xC3\xA9\xE2\x96\x81 <bos>\n\n<0x0A> aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    encode(tokenizer, input);
  } catch (const gemmad::TokenizerError&) {
  }
  return 0;
}
