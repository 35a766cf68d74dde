#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "daemon/tokenizer/tokenizer.h"
#include "daemon/tokenizer/utf8.h"
#include "tests/daemon/tokenizer/small_tokenizer.h"
#include "tests/support/catch.h"

using namespace gemmad;
using namespace gemmad::test;

namespace {

using Ids = std::vector<std::int32_t>;
using Random = std::mt19937_64;

Tokenizer parse(const nlohmann::json& file) {
  return Tokenizer::parse(file.dump(), "test");
}

/// Merges the plain way: look at all neighbours, merge the leftmost of the lowest rank, start over.
Ids encode_plainly(const nlohmann::json& file, const std::string& text) {
  const nlohmann::json& vocab = file["model"]["vocab"];
  std::vector<std::string> symbols;
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t begin = position;
    std::string letter =
        read_code_point(text, position) == U' ' ? "\u2581" : text.substr(begin, position - begin);
    if (vocab.contains(letter)) {
      symbols.push_back(letter);
    } else {
      for (const char byte : letter)
        symbols.push_back(byte_piece(static_cast<std::uint8_t>(byte)));
    }
  }
  const nlohmann::json& merges = file["model"]["merges"];
  for (bool merged = true; merged;) {
    merged = false;
    for (std::size_t rank = 0; rank < merges.size() && !merged; ++rank) {
      for (std::size_t i = 0; i + 1 < symbols.size() && !merged; ++i) {
        const auto pair = merges[rank].get<std::vector<std::string>>();
        if (symbols[i] != pair[0] || symbols[i + 1] != pair[1]) continue;
        symbols[i] += symbols[i + 1];
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        merged = true;
      }
    }
  }
  Ids ids{kBos};
  for (const std::string& symbol : symbols)
    ids.push_back(vocab[symbol]);
  return ids;
}

/// Distinct merges of what is there so far, so that pieces grow.
MergeList random_merges(std::vector<std::string> pieces, std::size_t count, Random& random) {
  MergeList merges;
  while (merges.size() < count) {
    const std::pair<std::string, std::string> merge{pieces[random() % pieces.size()],
                                                    pieces[random() % pieces.size()]};
    if (std::find(merges.begin(), merges.end(), merge) != merges.end()) continue;
    merges.push_back(merge);
    pieces.push_back(merge.first + merge.second);
  }
  std::shuffle(merges.begin(), merges.end(), random);
  return merges;
}

std::string random_text(const std::vector<std::string>& letters, std::size_t count, Random& random) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i)
    text += letters[random() % letters.size()];
  return text;
}

void compare_with_plain(const std::vector<std::string>& letters, const std::vector<std::string>& symbols,
                        std::uint64_t seed) {
  CAPTURE(seed);
  Random random(seed);
  const nlohmann::json file = tokenizer_of(letters, random_merges(symbols, 2 + random() % 30, random));
  const Tokenizer tokenizer = parse(file);
  std::vector<std::string> typed = letters;
  typed.insert(typed.end(), {" ", "x", "\u00E9", "\U0001F642"});
  // Lengths on both sides of the switch from the scan to the heap.
  for (const std::size_t count : {0, 1, 2, 3, 7, 31, 32, 33, 34, 90}) {
    const std::string text = random_text(typed, count, random);
    CAPTURE(text);
    REQUIRE(tokenizer.encode(text) == encode_plainly(file, text));
  }
}

}  // namespace

TEST_CASE("Merging equals the plain definition under random merges", "[bpe]") {
  const std::vector<std::string> letters{"\u2581", "a", "b", "c", "\u00FC"};
  for (std::uint64_t seed = 1; seed <= 60; ++seed)
    compare_with_plain(letters, letters, seed);
}

TEST_CASE("Merging equals the plain definition where byte pieces merge too", "[bpe]") {
  const std::vector<std::string> letters{"\u2581", "a", "b"};
  std::vector<std::string> symbols = letters;
  for (const int byte : {0x78, 0xC3, 0xA9, 0xF0, 0x9F, 0x99, 0x82}) {
    symbols.push_back(byte_piece(static_cast<std::uint8_t>(byte)));
  }
  for (std::uint64_t seed = 1; seed <= 60; ++seed)
    compare_with_plain(letters, symbols, seed);
}

TEST_CASE("Merging equals the plain definition where merges spell a byte piece", "[bpe]") {
  const std::vector<std::string> letters{"<", "0", "x", "A", ">", "\u2581"};
  const MergeList merges{{"<", "0"},    {"<0", "x"},    {"<0x", "A"},
                         {"<0xA", "A"}, {"<0xAA", ">"}, {"<0xAA>", "\u2581"}};
  const nlohmann::json file = tokenizer_of(letters, merges);
  const std::string text = "<0xAA> <0xAA>";
  CHECK(parse(file).encode(text) == encode_plainly(file, text));
}

TEST_CASE("Equal ranks merge from the left", "[bpe]") {
  const Tokenizer tokenizer = parse(tokenizer_of({"a"}, {{"a", "a"}}));
  CHECK(tokenizer.encode("aaa") == Ids{kBos, kFirstLetter + 1, kFirstLetter});
  CHECK(tokenizer.encode(std::string(101, 'a')).back() == kFirstLetter);
}

TEST_CASE("Text is not cut inside a piece whose halves do not merge by themselves", "[bpe]") {
  // "b" and "c" never merge, but "ab" and "cd" do.
  const Tokenizer tokenizer =
      parse(tokenizer_of({"a", "b", "c", "d"}, {{"a", "b"}, {"c", "d"}, {"ab", "cd"}}));
  CHECK(tokenizer.encode("abcd") == Ids{kBos, kFirstLetter + 6});
}

TEST_CASE("A code point without a piece becomes its bytes", "[bpe]") {
  const Tokenizer tokenizer = parse(small_tokenizer());
  CHECK(tokenizer.encode("a\u00E9") == Ids{kBos, 261, kFirstByte + 0xC3, kFirstByte + 0xA9});
}

TEST_CASE("Spaces fall to the bytes of U+2581 where that has no piece", "[bpe]") {
  const Tokenizer tokenizer = parse(tokenizer_of({"a"}, {}));
  CHECK(tokenizer.encode(" ") == Ids{kBos, kFirstByte + 0xE2, kFirstByte + 0x96, kFirstByte + 0x81});
}
