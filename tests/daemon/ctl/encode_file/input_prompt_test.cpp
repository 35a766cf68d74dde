#include "daemon/ctl/encode_file/input_prompt.h"

#include "tests/support/catch.h"

namespace gemmad {
namespace {

using nlohmann::json;

constexpr InputLimits kLimits{512, 1 << 16};

InputPrompt parsed(const std::string& text, std::int64_t number = 7) {
  return parse_input_line({number, text, false}, "prompt", kLimits);
}

/// Why a line is refused.
std::string reason(const std::string& text) {
  try {
    parsed(text);
  } catch (const LineError& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a line is a string, an object with text, or one with ids") {
  CHECK(parsed(R"("a dog")").prompt == "a dog");
  CHECK(parsed(R"({"prompt": "a dog", "other": [1]})").prompt == "a dog");
  CHECK(parsed(R"({"input_ids": [2, 17]})").prompt == json{{"input_ids", {2, 17}}});
  CHECK(parse_input_line({1, R"({"caption": "a cat"})", false}, "caption", kLimits).prompt == "a cat");
  CHECK(parsed("\"a dog\" \r").prompt == "a dog");
}

TEST_CASE("without an id the line's number is it") {
  CHECK(parsed(R"("a")", 7).id == "00000007");
  CHECK(parsed(R"("a")", 123'456'789).id == "123456789");
}

TEST_CASE("an id is a string or a whole number") {
  CHECK(parsed(R"({"prompt": "a", "id": "clip_17.b-2"})").id == "clip_17.b-2");
  CHECK(parsed(R"({"prompt": "a", "id": 17})").id == "17");
}

TEST_CASE("an id that is not fit for a file's name is refused") {
  for (const char* const id : {R"("")", R"("..")", R"(".a")", R"("-a")", R"("a/b")", R"("a b")", R"("ä")",
                               R"("a\u0000")", "null", "-1", "1.5", "[]"}) {
    INFO(id);
    CHECK(has(reason(R"({"prompt": "a", "id": )" + std::string(id) + "}"), "\"id\""));
  }
  CHECK(reason(R"({"prompt": "a", "id": ")" + std::string(128, 'a') + "\"}").empty());
  CHECK(has(reason(R"({"prompt": "a", "id": ")" + std::string(129, 'a') + "\"}"), "128"));
}

TEST_CASE("what is no prompt is refused with the reason") {
  CHECK(has(reason("17"), "neither a JSON string nor an object"));
  CHECK(has(reason(R"({"text": "a"})"), "neither \"prompt\" nor \"input_ids\""));
  CHECK(has(reason(R"({"prompt": "a", "input_ids": [2]})"), "both"));
  CHECK(has(reason(R"({"prompt": 3})"), "not a string"));
  CHECK(has(reason(R"({"prompt": "a")"), "JSON"));
  CHECK(has(reason("\"a\xff\""), "JSON"));
  CHECK(has(reason(R"({"prompt": "a", "prompt": "b"})"), "prompt"));
}

TEST_CASE("ids are those of the vocabulary, and at least one") {
  CHECK(reason(R"({"input_ids": [0, 511]})").empty());
  CHECK(has(reason(R"({"input_ids": [512]})"), "511"));
  CHECK(has(reason(R"({"input_ids": [-1]})"), "-1"));
  CHECK(has(reason(R"({"input_ids": [1.5]})"), "1.5"));
  CHECK(has(reason(R"({"input_ids": []})"), "at least one"));
  CHECK(has(reason(R"({"input_ids": "2"})"), "list"));
}

TEST_CASE("lines and prompts beyond their limits are refused with the limit") {
  CHECK_THROWS_AS(parse_input_line({1, "", true}, "prompt", kLimits), LineError);
  const std::string prompt((1 << 16) - 3, 'a');  // two quotes and a comma besides
  CHECK(reason("\"" + prompt + "\"").empty());
  CHECK(has(reason("\"" + prompt + "a\""), "65536"));
}

TEST_CASE("the fingerprint tells prompts apart, and text from ids") {
  CHECK(parsed(R"("abc")").fingerprint ==
        "text sha256 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(parsed(R"({"prompt": "abc", "id": "x"})").fingerprint == parsed(R"("abc")").fingerprint);
  CHECK(parsed(R"("abd")").fingerprint != parsed(R"("abc")").fingerprint);
  CHECK(parsed(R"({"input_ids": [2, 3]})").fingerprint != parsed(R"("[2,3]")").fingerprint);
  CHECK(parsed(R"({"input_ids": [2, 3]})").fingerprint == parsed(R"({"input_ids":[2,3]})").fingerprint);
}

}  // namespace
}  // namespace gemmad
