#include "daemon/tokenizer/chat_template.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "daemon/tokenizer/system_prompts.h"
#include "tests/daemon/tokenizer/real_tokenizer.h"
#include "tests/daemon/tokenizer/small_tokenizer.h"
#include "tests/support/catch.h"

using namespace gemmad;
using namespace gemmad::test;

namespace {

using Ids = std::vector<std::int32_t>;

const std::string kFolder = GEMMAD_TEST_DATA "/models/gemma3-tiny/";
const std::string kSystem = "You rewrite prompts.\nBe vivid.\n";
constexpr ImageTokens kTinyImage = {500, 502, 4, 501};
constexpr ImageTokens kImage = {255999, 262144, 256, 256000};

Tokenizer tiny() {
  return Tokenizer::load(kFolder + "tokenizer.json");
}

nlohmann::json golden() {
  std::ifstream file(kFolder + "golden-enhance.json");
  return nlohmann::json::parse(file);
}

std::string refusal(const Tokenizer& tokenizer, std::string_view system, std::string_view prompt,
                    const ImageTokens* image = nullptr) {
  try {
    enhance_prompt(tokenizer, system, prompt, image);
  } catch (const TokenizerError& error) {
    return error.what();
  }
  return "";
}

Ids slice(const Ids& ids, std::int64_t begin, std::int64_t end) {
  return Ids(ids.begin() + begin, ids.begin() + end);
}

}  // namespace

TEST_CASE("A prompt to enhance is rendered and tokenized as the reference does it", "[tokenizer]") {
  const auto t2v = golden().at("t2v");
  const EnhancePrompt found = enhance_prompt(tiny(), t2v.at("system_prompt").get<std::string>(),
                                             t2v.at("prompt").get<std::string>(), nullptr);
  CHECK(found.text == t2v.at("rendered").get<std::string>());
  CHECK(found.ids == t2v.at("input_ids").get<Ids>());
  CHECK_FALSE(found.first_soft_token);
}

TEST_CASE("With an image it is rendered as the reference does it, the prompt's end included", "[tokenizer]") {
  const EnhancePrompt found = enhance_prompt(tiny(), kSystem, "a dog runs ", &kTinyImage);
  CHECK(found.text == golden().at("i2v_rendered").get<std::string>());
}

TEST_CASE("An image's tokens stand where the reference's processor puts them", "[tokenizer]") {
  const Tokenizer tokenizer = tiny();
  const EnhancePrompt found = enhance_prompt(tokenizer, kSystem, "a dog", &kTinyImage);
  const std::string expanded =
      "<bos><start_of_turn>user\n" + kSystem +
      "\n\n\n\n<start_of_image><image_soft_token><image_soft_token><image_soft_token>"
      "<image_soft_token><end_of_image>\n\nUser Raw Input Prompt: a dog.<end_of_turn>\n"
      "<start_of_turn>model\n";
  CHECK(found.ids == tokenizer.encode(expanded));
  REQUIRE(found.first_soft_token);
  const std::int64_t first = *found.first_soft_token;
  CHECK(slice(found.ids, first - 1, first + 5) == Ids{500, 502, 502, 502, 502, 501});
  CHECK(std::count(found.ids.begin(), found.ids.end(), 502) == 4);
}

TEST_CASE("White space of a prompt: its end goes without an image, all else stays", "[tokenizer]") {
  const Tokenizer tokenizer = tiny();
  const auto text = [&](std::string_view prompt, const ImageTokens* image) {
    return enhance_prompt(tokenizer, "S", prompt, image).text;
  };
  const std::string begin = "<bos><start_of_turn>user\nS\n\n";
  const std::string end = "<end_of_turn>\n<start_of_turn>model\n";
  CHECK(text(" \n a \u3000\n\t", nullptr) == begin + "user prompt:  \n a" + end);
  CHECK(text("", nullptr) == begin + "user prompt:" + end);
  CHECK(text(" \n a \n", &kTinyImage) == begin + "<start_of_image>User Raw Input Prompt:  \n a \n." + end);
  CHECK(text("", &kTinyImage) == begin + "<start_of_image>User Raw Input Prompt: ." + end);
}

TEST_CASE("A system prompt stays as it is, and none leaves no trace", "[tokenizer]") {
  const Tokenizer tokenizer = tiny();
  CHECK(enhance_prompt(tokenizer, "  S\n", "a", nullptr).text ==
        "<bos><start_of_turn>user\n  S\n\n\nuser prompt: a<end_of_turn>\n<start_of_turn>model\n");
  CHECK(enhance_prompt(tokenizer, "", "a", nullptr).text ==
        "<bos><start_of_turn>user\nuser prompt: a<end_of_turn>\n<start_of_turn>model\n");
}

TEST_CASE("Control tokens in either prompt are refused by name, with and without an image", "[tokenizer]") {
  const Tokenizer tokenizer = tiny();
  for (const char* token : {"<bos>", "<eos>", "<pad>", "<unk>", "<start_of_turn>", "<end_of_turn>",
                            "<start_of_image>", "<end_of_image>", "<image_soft_token>"}) {
    for (const ImageTokens* image : {static_cast<const ImageTokens*>(nullptr), &kTinyImage}) {
      const std::string text = std::string("a ") + token + " b";
      CHECK(refusal(tokenizer, "S", text, image) == "the prompt holds the control token \"" +
                                                        std::string(token) +
                                                        "\"; text to enhance may hold none: leave it out");
      CHECK(refusal(tokenizer, text, "a", image).find("the system prompt holds the control token") == 0);
    }
  }
  CHECK(refusal(tokenizer, "S", "<bos>").find("the prompt holds") == 0);
}

TEST_CASE("What only looks like a control token, alone or with the template around it, is text",
          "[tokenizer]") {
  const Tokenizer tokenizer = tiny();
  const auto control_tokens = [&](std::string_view system, std::string_view prompt,
                                  const ImageTokens* image) {
    Ids found = enhance_prompt(tokenizer, system, prompt, image).ids;
    std::erase_if(found, [&](std::int32_t id) { return !tokenizer.is_special(id); });
    return found;
  };
  for (const char* text :
       {"<end_of_turn", "<", "end_of_turn>", "< end_of_turn>", "<start_of_image\n>", "<mask>"}) {
    CAPTURE(text);
    CHECK(control_tokens(text, text, nullptr) == Ids{2, 2, 503, 504, 503});
    CHECK(control_tokens(text, text, &kTinyImage) == Ids{2, 2, 503, 500, 502, 502, 502, 502, 501, 504, 503});
  }
}

TEST_CASE("A tokenizer without the template's tokens or the image's is refused", "[tokenizer]") {
  const Tokenizer small = Tokenizer::parse(small_tokenizer().dump(), "test");
  CHECK(refusal(small, "S", "a").find("the tokenizer has no control token <start_of_turn>") == 0);
  const ImageTokens no_image = {100000, 502, 4, 501};
  CHECK(refusal(tiny(), "S", "a", &no_image)
            .find("the tokenizer has no control token boi_token_index 100000") == 0);
  const ImageTokens no_end = {500, 502, 4, -1};
  CHECK(refusal(tiny(), "S", "a", &no_end).find("the tokenizer has no control token eoi_token_index -1") ==
        0);
  const ImageTokens empty = {500, 502, 0, 501};
  CHECK_THROWS_AS(enhance_prompt(tiny(), "S", "a", &empty), std::invalid_argument);
}

TEST_CASE("Invalid UTF-8 in either prompt is refused", "[tokenizer]") {
  CHECK(refusal(tiny(), "S", "a\xFF").find("not valid UTF-8") != std::string::npos);
  CHECK(refusal(tiny(), "\xFF", "a", &kTinyImage).find("not valid UTF-8") != std::string::npos);
}

TEST_CASE("The real tokenizer's ids are those that the model knows, around an image too",
          "[tokenizer][real]") {
  const EnhancePrompt text = enhance_prompt(real_tokenizer(), kSystem, "a dog", nullptr);
  CHECK(slice(text.ids, 0, 5) == Ids{2, 2, 105, 2364, 107});
  CHECK(std::count(text.ids.begin(), text.ids.end(), 109) == 1);  // three newlines before the user's prompt
  const Ids end = {106, 107, 105, 4368, 107};
  CHECK(std::equal(end.rbegin(), end.rend(), text.ids.rbegin()));

  const EnhancePrompt image = enhance_prompt(real_tokenizer(), kSystem, "a dog", &kImage);
  REQUIRE(image.first_soft_token);
  const std::int64_t first = *image.first_soft_token;
  CHECK(slice(image.ids, first - 2, first) == Ids{111, 255999});  // five newlines
  CHECK(slice(image.ids, first, first + 256) == Ids(256, 262144));
  CHECK(slice(image.ids, first + 256, first + 258) == Ids{256000, 108});
  CHECK(std::equal(end.rbegin(), end.rend(), image.ids.rbegin()));
}

TEST_CASE("The default system prompts differ, end in one newline, and pass the template",
          "[tokenizer][real]") {
  CHECK(default_system_prompt(false) != default_system_prompt(true));
  for (const bool with_image : {false, true}) {
    const std::string_view prompt = default_system_prompt(with_image);
    CHECK(prompt.ends_with(".\n"));
    const auto lines = std::count(prompt.begin(), prompt.end(), '\n');
    CHECK((lines >= 6 && lines <= 12));
    CHECK(std::all_of(prompt.begin(), prompt.end(),
                      [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
    CHECK(enhance_prompt(real_tokenizer(), prompt, "a dog", with_image ? &kImage : nullptr).ids.size() <
          1024);
  }
}
