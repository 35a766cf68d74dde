#include "daemon/tokenizer/tokenizer.h"

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "daemon/tokenizer/prompt_encoder.h"
#include "tests/daemon/tokenizer/small_tokenizer.h"
#include "tests/support/catch.h"

using namespace gemmad;
using namespace gemmad::test;

namespace {

using Ids = std::vector<std::int32_t>;

Tokenizer parse(const nlohmann::json& file) {
  return Tokenizer::parse(file.dump(), "test");
}

std::string error_of(const Tokenizer& tokenizer, std::string_view text) {
  try {
    tokenizer.encode(text);
  } catch (const TokenizerError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("Merges apply by rank and spaces become U+2581", "[tokenizer]") {
  const Tokenizer tokenizer = parse(small_tokenizer());
  CHECK(tokenizer.encode("") == Ids{kBos});
  CHECK(tokenizer.encode("abc") == Ids{kBos, 265});
  CHECK(tokenizer.encode(" abc") == Ids{kBos, 260, 265});
  CHECK(tokenizer.encode(" a") == Ids{kBos, 266});
  CHECK(tokenizer.encode(" \u2581") == Ids{kBos, 260, 260});
}

TEST_CASE("Without a normalizer a space stays a space", "[tokenizer]") {
  nlohmann::json file = small_tokenizer();
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] = nullptr;
  CHECK(parse(file).encode(" a") == Ids{kBos, kFirstByte + ' ', 261});
}

TEST_CASE("Without a post-processor no BOS is put in front", "[tokenizer]") {
  nlohmann::json file = small_tokenizer();
  SECTION("null") {
    file["post_processor"] = nullptr;
  }
  SECTION("absent") {
    file.erase("post_processor");
  }
  SECTION("a template of the text alone") {
    file["post_processor"]["single"].erase(0);
  }
  const Tokenizer tokenizer = parse(file);
  CHECK(tokenizer.encode("").empty());
  CHECK(tokenizer.encode("a") == Ids{261});
  CHECK(tokenizer.encode("<bos>a") == Ids{kBos, 261});
  CHECK(tokenizer.bos_id() == kBos);
}

TEST_CASE("Merges written as one string are read alike", "[tokenizer]") {
  nlohmann::json file = small_tokenizer();
  for (nlohmann::json& merge : file["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  CHECK(parse(file).encode(" abc ab a") == parse(small_tokenizer()).encode(" abc ab a"));
}

TEST_CASE("Keys may come in any order", "[tokenizer]") {
  const nlohmann::json file = small_tokenizer();
  nlohmann::ordered_json turned;
  turned["post_processor"] = file["post_processor"];
  turned["model"]["merges"] = file["model"]["merges"];
  for (const auto& item : file["model"].items())
    turned["model"][item.key()] = item.value();
  for (const auto& item : file.items())
    turned[item.key()] = item.value();
  CHECK(Tokenizer::parse(turned.dump(2), "test").encode(" abc") == Ids{kBos, 260, 265});
}

TEST_CASE("Control tokens that a user types get their ids", "[tokenizer]") {
  const Tokenizer tokenizer = parse(small_tokenizer());
  CHECK(tokenizer.encode("<bos>a<eos><pad>b") == Ids{kBos, kBos, 261, kEos, kPad, 262});
}

TEST_CASE("Merges do not reach across an added token", "[tokenizer]") {
  CHECK(parse(small_tokenizer()).encode("a<eos>b") == Ids{kBos, 261, kEos, 262});
}

TEST_CASE("An added token beyond the model's vocabulary counts in its size", "[tokenizer]") {
  nlohmann::json file = small_tokenizer();
  file["added_tokens"].push_back(added_token(300, "<image>"));
  const Tokenizer tokenizer = parse(file);
  CHECK(tokenizer.vocab_size() == 301);
  CHECK(tokenizer.encode("a<image>") == Ids{kBos, 261, 300});
  CHECK(tokenizer.piece(300) == "<image>");
  CHECK(tokenizer.piece(261) == "a");
  for (const std::int32_t nobody : {-1, 290, 301})
    CHECK(tokenizer.piece(nobody).empty());
}

TEST_CASE("A space in the text does not match an added run of U+2581", "[tokenizer]") {
  nlohmann::json file = small_tokenizer();
  file["added_tokens"].push_back(added_token(300, "\u2581\u2581"));
  const Tokenizer tokenizer = parse(file);
  CHECK(tokenizer.encode("  ") == Ids{kBos, 260, 260});
  CHECK(tokenizer.encode("\u2581\u2581") == Ids{kBos, 300});
}

TEST_CASE("Every byte has its token", "[tokenizer]") {
  const Tokenizer tokenizer = parse(tokenizer_of({}, {}));
  for (int byte = 0; byte < 0x80; ++byte) {
    if (byte == ' ') continue;
    CHECK(tokenizer.encode(std::string(1, static_cast<char>(byte))) == Ids{kBos, kFirstByte + byte});
  }
}

TEST_CASE("Invalid UTF-8 is refused and its place told", "[tokenizer]") {
  const Tokenizer tokenizer = parse(small_tokenizer());
  CHECK(error_of(tokenizer, "abc\xFFz") == "text of 5 bytes is not valid UTF-8 at byte 3");
  CHECK(error_of(tokenizer, "\xED\xA0\x80") == "text of 3 bytes is not valid UTF-8 at byte 0");
}

TEST_CASE("A tokenizer can be moved and is used by many threads at once", "[tokenizer]") {
  Tokenizer first = parse(small_tokenizer());
  const Tokenizer tokenizer = std::move(first);
  const std::string text(5000, 'a');
  const Ids expected = tokenizer.encode(text);
  std::vector<Ids> found(4);
  std::vector<std::thread> threads;
  for (Ids& ids : found)
    threads.emplace_back([&] { ids = tokenizer.encode(text); });
  for (std::thread& thread : threads)
    thread.join();
  for (const Ids& ids : found)
    CHECK(ids == expected);
}

TEST_CASE("The tiny models' prompts get the ids of their goldens", "[tokenizer]") {
  const std::string name = GENERATE(as<std::string>{}, "tiny-gemma3", "tiny-gemma4");
  const std::string folder = GEMMAD_TEST_DATA "/tokenizer/";
  const Tokenizer tokenizer = Tokenizer::load(folder + name + ".json");
  CHECK(tokenizer.vocab_size() == 512);
  std::ifstream cases(folder + name + "-prompts.jsonl");
  int count = 0;
  for (std::string line; std::getline(cases, line); ++count) {
    const auto golden = nlohmann::json::parse(line);
    CAPTURE(line);
    CHECK(encode_prompt(tokenizer, golden["text"].get<std::string>(), 1024).ids ==
          golden["encode_ids"].get<Ids>());
  }
  CHECK(count == 6);
}
