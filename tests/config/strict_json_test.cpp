#include "config/strict_json.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/config/config_testing.h"
#include "tests/support/catch.h"

using namespace gemmad;
using nlohmann::json;

namespace {

json parse(const std::string& text) {
  return parse_strict_json(text, "f.json", kMaxConfigBytes);
}

std::string refusal(const std::string& text) {
  return error_of([&] { parse(text); });
}

std::string repeat(const std::string& part, std::size_t times) {
  std::string result;
  while (times-- > 0)
    result += part;
  return result;
}

}  // namespace

TEST_CASE("strict JSON builds what an ordinary parser builds") {
  const std::string text =
      GENERATE(as<std::string>{}, R"({"a":[1,-2,3.5,true,null,"x"],"b":{"c":{}},"d":[]})", "[[],[[]]]",
               "18446744073709551615", "-9223372036854775808", "\"\\u00e9\\ud83d\\ude00\"", " \t\r\n{} \n",
               "{\"\":{\"\":0}}", "0.1");
  CAPTURE(text);
  CHECK(parse(text) == json::parse(text));
}

TEST_CASE("strict JSON refuses a repeated key at any depth, by path") {
  CHECK(refusal(R"({"a":1,"b":2,"a":3})") == "f.json: key 'a': is repeated");
  CHECK(refusal(R"({"a":{"b":1,"b":1}})") == "f.json: key 'a.b': is repeated");
  CHECK(refusal(R"({"l":[0,{"x":{"y":[],"y":1}}]})") == "f.json: key 'l[1].x.y': is repeated");
  CHECK(refusal(R"({"a":1,"\u0061":2})") == "f.json: key 'a': is repeated");
  CHECK(refusal(R"({"":1,"":2})") == "f.json: key '': is repeated");
}

TEST_CASE("strict JSON lets the same key occur in different objects") {
  CHECK(refusal(R"({"a":{"a":[{"a":1},{"a":2}]}})").empty());
}

TEST_CASE("strict JSON names line and column of a syntax error") {
  CHECK(contains(refusal("{\n  \"a\": 1,\n  \"b\" 2\n}"), "f.json: line 3 column 7: "));
  CHECK(contains(refusal("x"), "f.json: line 1 column 1: "));
  CHECK(contains(refusal("{\"a\":1"), "f.json: line 1 column 7: "));
}

TEST_CASE("strict JSON refuses texts that lenient parsers take") {
  const auto [text, why] = GENERATE(table<std::string, std::string>({
      {"{} {}", "trailing value"},
      {"{},", "trailing comma"},
      {std::string("{}\0x", 4), "bytes after a NUL"},
      {std::string("{\"a\0b\":1}", 9), "NUL in a key"},
      {"// c\n{}", "line comment"},
      {"{/* c */}", "block comment"},
      {"{\"a\":1,}", "comma before a brace"},
      {"[1,]", "comma before a bracket"},
      {"{'a':1}", "single quotes"},
      {"{a:1}", "bare key"},
      {"NaN", "NaN"},
      {"[Infinity]", "infinity"},
      {"[-Infinity]", "negative infinity"},
      {"[1e999]", "number beyond a double"},
      {"[01]", "leading zero"},
      {"[.5]", "no digit before the point"},
      {"[0x10]", "hexadecimal"},
      {"[+1]", "plus sign"},
      {"\"\xff\"", "byte that UTF-8 has not"},
      {"{\"\xc3\":1}", "cut UTF-8 in a key"},
      {"\"\xc0\xaf\"", "overlong UTF-8"},
      {"\"\xed\xa0\x80\"", "surrogate in UTF-8"},
      {"\"\\ud800\"", "lone high surrogate escape"},
      {"\"\\udc00\"", "lone low surrogate escape"},
      {"\"a\nb\"", "line break in a string"},
      {"\xef\xbb\xbf{}", "byte order mark"},
      {"\"abc", "string without end"},
      {"{\"a\":", "object without end"},
      {"]", "bracket never opened"},
  }));
  INFO(why);
  const std::string message = refusal(text);
  CHECK(contains(message, "f.json: line "));
  CHECK(contains(message, " column "));
}

TEST_CASE("strict JSON keeps its messages printable and short") {
  const std::string message = refusal("{\"" + std::string(100'000, '\x01') + "\":1}");
  CHECK(message.size() < 500);
  const std::string repeated_key(5'000, '\x7f');
  const std::string other = refusal("{\"" + repeated_key + "\":1,\"" + repeated_key + "\":1}");
  CHECK(contains(other, "is repeated"));
  CHECK(other.size() < 700);
  for (const char c : message + other)
    REQUIRE((c >= 0x20 && c < 0x7f));
}

TEST_CASE("strict JSON refuses a text without content") {
  CHECK(refusal("") == "f.json: line 1 column 1: is empty, must be JSON");
  CHECK(refusal(" \n\t ") == "f.json: line 1 column 1: is empty, must be JSON");
}

TEST_CASE("strict JSON nests to its limit and no deeper") {
  CHECK(refusal(repeat("[", 64) + repeat("]", 64)).empty());
  CHECK(contains(refusal(repeat("[", 65) + repeat("]", 65)), "deeper than 64 levels"));
  CHECK(contains(refusal(repeat("{\"a\":", 65) + "1" + repeat("}", 65)), "deeper than 64 levels"));
  CHECK(contains(refusal(repeat("[", 1'000'000)), "deeper than 64 levels"));
}

TEST_CASE("strict JSON takes a text of just the most bytes") {
  const std::string text = "\"" + std::string(kMaxConfigBytes - 2, 'x') + "\"";
  CHECK(refusal(text).empty());
  CHECK(refusal(text + " ") == "f.json: has 1048577 bytes, at most 1048576 are read");
}

TEST_CASE("read_text_file stops at its limit and names the file") {
  const std::filesystem::path file = std::filesystem::path(GEMMAD_TEST_SCRATCH) / "read_text_file.txt";
  std::ofstream(file) << std::string(100'000, 'a');
  CHECK(read_text_file(file, 100'000).size() == 100'000);
  CHECK(error_of([&] { read_text_file(file, 99'999); }) == file.string() + ": has more than 99999 bytes");
  CHECK(error_of([&] { read_text_file("/dev/zero", 70'000); }) == "/dev/zero: has more than 70000 bytes");
  CHECK(error_of([&] { read_text_file(file.string() + ".absent", 1); }) ==
        file.string() + ".absent: cannot be opened: No such file or directory");
  CHECK(
      contains(error_of([&] { read_text_file(GEMMAD_TEST_SCRATCH, 10); }), "cannot be read: Is a directory"));
}

TEST_CASE("read_text_file reads an empty file as an empty text") {
  CHECK(read_text_file("/dev/null", 10).empty());
}
