#include "daemon/tokenizer/added_tokens.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"

using gemmad::AddedTokenMatcher;

namespace {

/// "id@begin" of all matches, as encode walks through them.
std::vector<std::string> matches(const AddedTokenMatcher& matcher, std::string_view text) {
  std::vector<std::string> out;
  std::size_t from = 0;
  while (const auto match = matcher.find(text, from)) {
    out.push_back(std::to_string(match->id) + "@" + std::to_string(match->begin));
    from = match->end;
  }
  return out;
}

using Found = std::vector<std::string>;

}  // namespace

TEST_CASE("The longest of the tokens that start at one place wins", "[added_tokens]") {
  const AddedTokenMatcher matcher({{"\n", 1}, {"\n\n", 2}, {"\n\n\n\n", 4}});
  CHECK(matches(matcher, "\n") == Found{"1@0"});
  CHECK(matches(matcher, "\n\n\n") == Found{"2@0", "1@2"});
  CHECK(matches(matcher, "\n\n\n\n\n\n\n") == Found{"4@0", "2@4", "1@6"});
}

TEST_CASE("A longer token that starts earlier but does not fit gives way", "[added_tokens]") {
  const AddedTokenMatcher matcher({{"<abc>", 1}, {"bc", 2}, {"<a", 3}});
  CHECK(matches(matcher, "<abc>") == Found{"1@0"});
  CHECK(matches(matcher, "<abcd") == Found{"3@0", "2@2"});
  CHECK(matches(matcher, "<<<a<") == Found{"3@2"});
}

TEST_CASE("A token cut off by the end of the text is none", "[added_tokens]") {
  const AddedTokenMatcher matcher({{"<bos>", 2}});
  CHECK(matches(matcher, "<bos").empty());
  CHECK(matches(matcher, "<bo<bos>") == Found{"2@3"});
  CHECK(matches(matcher, "").empty());
}

TEST_CASE("Tokens match as bytes, above ASCII too", "[added_tokens]") {
  const AddedTokenMatcher matcher(
      {{"\u2581\u2581", 7}, {"\u2581\u2581\u2581", 8}, {std::string(1, '\0'), 9}});
  CHECK(matches(matcher, "\u2581x\u2580\u2581\u2581\u2582") == Found{"7@7"});
  CHECK(matches(matcher, "\u2581\u2581\u2581\u2581") == Found{"8@0"});
  CHECK(matches(matcher, std::string_view("a\0b", 3)) == Found{"9@1"});
}

TEST_CASE("Without tokens nothing matches", "[added_tokens]") {
  CHECK(matches(AddedTokenMatcher({}), "<bos>\n").empty());
}
