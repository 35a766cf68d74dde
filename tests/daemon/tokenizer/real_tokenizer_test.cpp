#include "tests/daemon/tokenizer/real_tokenizer.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "daemon/tokenizer/prompt_encoder.h"
#include "tests/support/catch.h"

using namespace gemmad;
using test::real_tokenizer;

namespace {

using Ids = std::vector<std::int32_t>;

Ids encode(std::string_view text) {
  return real_tokenizer().encode(text);
}

std::string times(std::size_t count, const std::string& unit) {
  std::string out;
  while (count-- > 0)
    out += unit;
  return out;
}

}  // namespace

TEST_CASE("600 of 600 texts get the reference's ids", "[tokenizer][real]") {
  std::ifstream cases(GEMMAD_TOKENIZER_CASES);
  int count = 0;
  for (std::string line; std::getline(cases, line); ++count) {
    const auto golden = nlohmann::json::parse(line);
    const auto text = golden["text"].get<std::string>();
    CAPTURE(count, text);
    CHECK(encode(text) == golden["ids"].get<Ids>());
    CHECK(encode_prompt(real_tokenizer(), text, 1024).ids == golden["encode_ids"].get<Ids>());
  }
  CHECK(count == 600);
}

TEST_CASE("Runs of white space get the ids that the model knows", "[tokenizer][real]") {
  CHECK(encode("") == Ids{2});
  CHECK(encode("\n") == Ids{2, 107});
  CHECK(encode("\n\n") == Ids{2, 108});
  CHECK(encode(" ") == Ids{2, 236743});
  CHECK(encode("  ") == Ids{2, 138});
  CHECK(encode(std::string(31, ' ')) == Ids{2, 167});
  CHECK(encode(std::string(39, ' ')) == Ids{2, 167, 144});
  CHECK(encode(std::string(33, '\t')) == Ids{2, 255998, 255969});
  CHECK(encode(std::string(33, '\n')) == Ids{2, 137, 108});
}

TEST_CASE("Bytes, control tokens and names of the real vocabulary", "[tokenizer][real]") {
  const Tokenizer& tokenizer = real_tokenizer();
  CHECK(tokenizer.vocab_size() == 262145);
  CHECK(tokenizer.bos_id() == 2);
  CHECK(tokenizer.piece(262144) == "<image_soft_token>");
  const Ids nul = encode(std::string_view("\0", 1));
  REQUIRE(nul.size() == 2);
  CHECK(tokenizer.piece(nul[1]) == "<0x00>");
  CHECK(encode("<bos>") == Ids{2, 2});
  CHECK(encode("<start_of_turn>user\nhi<end_of_turn>") == Ids{2, 105, 2364, 107, 2202, 106});
  const Ids last = encode(times(100, "\U0010FFFF"));
  REQUIRE(last.size() == 401);
  for (std::size_t i = 1; i < last.size(); ++i) {
    static constexpr const char* kBytes[] = {"<0xBF>", "<0xF4>", "<0x8F>", "<0xBF>"};
    CHECK(tokenizer.piece(last[i]) == kBytes[i % 4]);
  }
}
