#include "config/quick_json.h"

#include <nlohmann/json.hpp>

#include "config/strict_json.h"
#include "tests/support/catch.h"

using namespace gemmad;
using nlohmann::json;

namespace {

std::string nested(std::size_t depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

}  // namespace

TEST_CASE("quick JSON is what an ordinary parser builds") {
  const std::string text =
      GENERATE(as<std::string>{}, R"({"id":1,"op":"encode","prompts":[{"input_ids":[2,262143,0]}]})",
               " \t\r\n{} \n", R"({ "a" : [ 1 , -2, true ,false,null ] , "b":{"":"x y"}, "c":[] })", "7",
               "-1", "0", "\"x\"", "[[],[[]]]", "999999999999999999", "-999999999999999999", "true");
  CAPTURE(text);
  const auto quick = quick_json(text);
  REQUIRE(quick);
  const json ordinary = json::parse(text);
  CHECK(*quick == ordinary);
  CHECK(quick->type() == ordinary.type());
  CHECK(quick->dump() == ordinary.dump());
}

TEST_CASE("quick JSON tells numbers with and without a sign apart, as the ordinary parser does") {
  const json numbers = quick_json("[1,-1]").value();
  CHECK(numbers[0].is_number_unsigned());
  CHECK_FALSE(numbers[1].is_number_unsigned());
}

TEST_CASE("quick JSON leaves what is out of the ordinary to others") {
  const std::string text =
      GENERATE(as<std::string>{}, "", " ", "1.5", "1e3", "01", "-0", "-", "+1", "1000000000000000000",
               "-1000000000000000000", "12345678901234567890123456789", "[1.5]", R"("a\n")", "\"\xc3\xa9\"",
               "\"\x7f\"", "\"a\tb\"", R"({"a":1,"a":2})", "tru", "nulls", "[1,]", "[1", "[1 2]", "{\"a\"}",
               R"({"a":1,})", "{1:2}", "\"a", "{} {}", "\xef\xbb\xbf{}", "//\n1", "NaN", "]", "[}");
  CAPTURE(text);
  CHECK_FALSE(quick_json(text));
}

TEST_CASE("quick JSON ends where the text does") {
  CHECK_FALSE(quick_json(std::string_view("1\0", 2)));
  CHECK_FALSE(quick_json(std::string_view("[1]", 2)));
  CHECK_FALSE(quick_json(std::string_view("true", 3)));
  CHECK(quick_json(std::string_view("123", 2)).value() == 12);
}

TEST_CASE("quick JSON nests as deep as strict JSON") {
  CHECK(quick_json(nested(kMaxJsonDepth)));
  CHECK_FALSE(quick_json(nested(kMaxJsonDepth + 1)));
}
