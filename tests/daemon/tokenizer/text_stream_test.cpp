#include "daemon/tokenizer/text_stream.h"

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "daemon/tokenizer/utf8.h"
#include "tests/daemon/tokenizer/real_tokenizer.h"
#include "tests/daemon/tokenizer/small_tokenizer.h"
#include "tests/support/catch.h"

using namespace gemmad;
using namespace gemmad::test;

namespace {

using Ids = std::vector<std::int32_t>;

Tokenizer small() {
  nlohmann::json file = small_tokenizer();
  file["added_tokens"].push_back(added_token(300, "<image>"));
  file["added_tokens"].push_back(added_token(301, "\u2581\u2581"));
  file["added_tokens"].back()["special"] = false;
  return Tokenizer::parse(file.dump(), "test");
}

Ids byte_ids(std::string_view bytes) {
  Ids ids;
  for (const char byte : bytes)
    ids.push_back(kFirstByte + static_cast<unsigned char>(byte));
  return ids;
}

Ids operator+(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// What each push returns, and last finish.
std::vector<std::string> parts(const Tokenizer& tokenizer, const Ids& ids) {
  TextStream stream(tokenizer);
  std::vector<std::string> out;
  for (const std::int32_t id : ids)
    out.push_back(stream.push(id));
  out.push_back(stream.finish());
  return out;
}

/// The rule by its definition, on all ids at once.
std::string decode_slowly(const Tokenizer& tokenizer, const Ids& ids) {
  std::string text;
  std::string run;
  const auto end_run = [&] {
    if (is_valid_utf8(run)) text += run;
    for (std::size_t i = 0; !is_valid_utf8(run) && i < run.size(); ++i)
      text += "\uFFFD";
    run.clear();
  };
  for (const std::int32_t id : ids) {
    std::string piece(tokenizer.piece(id));
    if (piece.empty() || tokenizer.is_special(id)) continue;
    if (id >= kFirstByte && id < kFirstLetter) {
      run += static_cast<char>(id - kFirstByte);
      continue;
    }
    end_run();
    for (std::size_t at; (at = piece.find("\u2581")) != piece.npos;)
      piece.replace(at, 3, " ");
    text += piece;
  }
  end_run();
  return text;
}

}  // namespace

TEST_CASE("A tokenizer knows its control tokens, its bytes and the ids of its pieces", "[tokenizer]") {
  const Tokenizer tokenizer = small();
  for (const std::int32_t id : {kPad, kEos, kBos, kUnk, 300})
    CHECK(tokenizer.is_special(id));
  for (const std::int32_t id : {-1, 4, 260, 266, 299, 301, 1000000})
    CHECK_FALSE(tokenizer.is_special(id));
  for (int byte = 0; byte < 256; ++byte)
    CHECK(tokenizer.byte_of(kFirstByte + byte) == byte);
  for (const std::int32_t id : {-1, 0, 3, 260, 300, 1000000})
    CHECK_FALSE(tokenizer.byte_of(id));
  CHECK(tokenizer.find("abc") == 265);
  CHECK(tokenizer.find("<image>") == 300);
  CHECK(tokenizer.find("<0x0A>") == kFirstByte + 10);
  CHECK(tokenizer.find("nothing") == -1);
  CHECK(tokenizer.find("") == -1);
}

TEST_CASE("Pieces come at once, with spaces, and control tokens and unknown ids not at all", "[tokenizer]") {
  CHECK(parts(small(), {kBos, 261, 266, 300, 301, 265, -1, 299, 5000, kEos}) ==
        std::vector<std::string>{"", "a", " a", "", "  ", "abc", "", "", "", "", ""});
}

TEST_CASE("A run of bytes is held until it ends, and is text if all of it is", "[tokenizer]") {
  const Tokenizer tokenizer = small();
  CHECK(parts(tokenizer, byte_ids("\u00e9!") + Ids{261}) ==
        std::vector<std::string>{"", "", "", "\u00e9!a", ""});
  CHECK(parts(tokenizer, byte_ids("\u00e9")) == std::vector<std::string>{"", "", "\u00e9"});
  CHECK(parts(tokenizer, byte_ids("A\xC3") + Ids{261}) ==
        std::vector<std::string>{"", "", "\uFFFD\uFFFDa", ""});
  CHECK(decode(tokenizer, byte_ids("\xC3") + Ids{261} + byte_ids("\xA9")) == "\uFFFDa\uFFFD");
}

TEST_CASE("A run that can no longer become text is told at once, and ends with its last byte",
          "[tokenizer]") {
  CHECK(parts(small(), byte_ids("A\xC3(B") + Ids{261} + byte_ids("A") + Ids{261}) ==
        std::vector<std::string>{"", "", "\uFFFD\uFFFD\uFFFD", "\uFFFD", "a", "", "Aa", ""});
}

TEST_CASE("What is left out does not end a run of bytes", "[tokenizer]") {
  const Tokenizer tokenizer = small();
  const Ids split = byte_ids("\xC3") + Ids{kEos, 300, -1, 299} + byte_ids("\xA9");
  CHECK(decode(tokenizer, split) == "\u00e9");
  CHECK(decode(tokenizer, byte_ids("A") + Ids{kEos} + byte_ids("\xFF")) == "\uFFFD\uFFFD");
}

TEST_CASE("A stream can be used again after its end", "[tokenizer]") {
  const Tokenizer tokenizer = small();
  TextStream stream(tokenizer);
  for (int round = 0; round < 2; ++round) {
    CHECK(stream.push(kFirstByte + 0xFF) == "\uFFFD");
    CHECK(stream.finish().empty());
    CHECK(stream.push(kFirstByte + 'x').empty());
    CHECK(stream.finish() == "x");
  }
}

TEST_CASE("What a stream holds has a bound", "[tokenizer]") {
  const Tokenizer tokenizer = small();
  const std::string text(2 * TextStream::kMaxRunBytes + 10, 'x');
  const std::vector<std::string> out = parts(tokenizer, byte_ids(text));
  CHECK(out[TextStream::kMaxRunBytes - 1].size() == TextStream::kMaxRunBytes);
  CHECK(out.back().size() == 10);
  CHECK(decode(tokenizer, byte_ids(text)) == text);
}

TEST_CASE("However ids come, a stream tells what a decoder of all of them does", "[tokenizer]") {
  const Tokenizer tokenizer = small();
  std::mt19937 random(7);
  // Bytes that begin, continue and break characters of every length, and their neighbours.
  const std::string bytes = "A\x7F\x80\x8F\x90\x9F\xA0\xBF\xC1\xC2\xDF\xE0\xE1\xED\xEF\xF0\xF1\xF4\xF5\xFF";
  const std::vector<std::string> characters = {"\u00e9", "\u0800",     "\uD7FF",
                                               "\uFFFF", "\U00010000", "\U0010FFFF"};
  for (int trial = 0; trial < 3000; ++trial) {
    Ids ids;
    while (ids.size() < 12) {
      switch (random() % 4) {
        case 0:
          ids.push_back(static_cast<std::int32_t>(258 + random() % 45));
          break;
        case 1:
          ids = ids + byte_ids(std::string(1, bytes[random() % bytes.size()]));
          break;
        case 2:
          ids = ids + byte_ids(characters[random() % characters.size()]);
          break;
        default:
          ids = ids +
                byte_ids(
                    std::string_view(characters[random() % characters.size()]).substr(0, 1 + random() % 3));
      }
    }
    std::string joined;
    for (const std::string& part : parts(tokenizer, ids)) {
      REQUIRE(is_valid_utf8(part));
      joined += part;
    }
    CAPTURE(ids);
    REQUIRE(joined == decode_slowly(tokenizer, ids));
  }
}

TEST_CASE("The tiny model's generated ids get the reference's text", "[tokenizer]") {
  const std::string folder = GEMMAD_TEST_DATA "/models/gemma3-tiny/";
  const Tokenizer tokenizer = Tokenizer::load(folder + "tokenizer.json");
  std::ifstream file(folder + "golden-enhance.json");
  const auto golden = nlohmann::json::parse(file).at("t2v");
  CHECK(decode(tokenizer, golden.at("greedy_tokens").get<Ids>()) ==
        golden.at("greedy_text").get<std::string>());
}

TEST_CASE("600 of 600 texts come back from their ids, but for control tokens", "[tokenizer][real]") {
  const Tokenizer& tokenizer = real_tokenizer();
  std::ifstream cases(GEMMAD_TOKENIZER_CASES);
  int count = 0;
  int compared = 0;
  for (std::string line; std::getline(cases, line); ++count) {
    const auto golden = nlohmann::json::parse(line);
    auto text = golden["text"].get<std::string>();
    Ids ids = golden["ids"].get<Ids>();
    ids.erase(ids.begin());
    const std::string decoded = decode(tokenizer, ids);
    CHECK(is_valid_utf8(decoded));
    // Control tokens are left out, and U+2581 in a text is taken for a space.
    if (std::any_of(ids.begin(), ids.end(), [&](std::int32_t id) { return tokenizer.is_special(id); }))
      continue;
    for (std::size_t at; (at = text.find("\u2581")) != text.npos;)
      text.replace(at, 3, " ");
    CAPTURE(count);
    CHECK(decoded == text);
    ++compared;
  }
  CHECK(count == 600);
  CHECK(compared > 500);
}
