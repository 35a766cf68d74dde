#include "daemon/tokenizer/tokenizer_file.h"

#include <fstream>
#include <functional>
#include <string>

#include "daemon/tokenizer/tokenizer.h"
#include "tests/daemon/tokenizer/small_tokenizer.h"
#include "tests/support/catch.h"

using namespace gemmad;
using namespace gemmad::test;
using nlohmann::json;

namespace {

/// What parsing complains of; "" when it does not.
std::string error_of(const std::string& text) {
  try {
    Tokenizer::parse(text, "dir/tokenizer.json");
  } catch (const TokenizerError& error) {
    return error.what();
  }
  return "";
}

void check_error(const std::string& text, const std::string& expected) {
  const std::string error = error_of(text);
  CAPTURE(error, expected);
  CHECK(error.find("dir/tokenizer.json: ") == 0);
  CHECK(error.find(expected) != std::string::npos);
}

struct Bend {
  const char* expected;  ///< part of the message
  std::function<void(json&)> change;
};

void check_bends(const std::vector<Bend>& bends) {
  for (const Bend& bend : bends) {
    json file = small_tokenizer();
    bend.change(file);
    check_error(file.dump(), bend.expected);
  }
}

/// The small tokenizer's text with `what`, which it must contain, replaced.
std::string with(const std::string& what, const std::string& by) {
  std::string text = small_tokenizer().dump();
  const std::size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), by);
}

std::filesystem::path scratch_file(const std::string& name, const std::string& bytes) {
  const std::filesystem::path path = std::filesystem::path(GEMMAD_TEST_SCRATCH) / name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string load_error(const std::filesystem::path& path) {
  try {
    Tokenizer::load(path);
  } catch (const TokenizerError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("Files that are no JSON are named for what they are", "[tokenizer_file]") {
  check_error("", "is empty (0 bytes)");
  check_error("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 33384568\n",
              "Git LFS pointer");
  check_error("\n<!DOCTYPE html><html><body>404</body></html>", "HTML");
  check_error("{\"model\" 1}", "is not valid JSON at byte 10 of 11");
  check_error(std::string("\0\0\0\0", 4), "is not valid JSON at byte 1 of 4");
  check_error("[]", "is an array");
  check_error("5", "is a single value");
  check_error("{}", "model: is missing");
  check_error("{\"model_type\":\"gemma3\"}", "\"model_type\"");
}

TEST_CASE("A file cut anywhere is refused", "[tokenizer_file]") {
  const std::string whole = small_tokenizer().dump();
  for (std::size_t size = 1; size < whole.size(); size += 97) {
    CAPTURE(size);
    check_error(whole.substr(0, size), "it is truncated");
  }
}

TEST_CASE("Loading names the file and what is wrong with it", "[tokenizer_file]") {
  const std::filesystem::path folder = GEMMAD_TEST_SCRATCH;
  CHECK(load_error(folder / "nowhere.json") ==
        (folder / "nowhere.json").string() + ": there is no such file");
  CHECK(load_error(folder) == folder.string() + ": is not a regular file");
  const auto empty = scratch_file("empty-tokenizer.json", "");
  CHECK(load_error(empty).find(empty.string() + ": is empty") == 0);
  CHECK(load_error(scratch_file("small-tokenizer.json", small_tokenizer().dump())) == "");
}

TEST_CASE("A file above the limit is refused unread", "[tokenizer_file]") {
  const auto path = scratch_file("huge-tokenizer.json", "{");
  std::filesystem::resize_file(path, kMaxTokenizerFileBytes + 1);  // a hole, no blocks
  const std::string error = load_error(path);
  std::filesystem::remove(path);
  CHECK(error.find("268435457 bytes long, above the limit of 268435456") != std::string::npos);
}

TEST_CASE("Model settings that are not implemented are named", "[tokenizer_file]") {
  check_bends({
      {"model.type: is \"WordPiece\"", [](json& f) { f["model"]["type"] = "WordPiece"; }},
      {"model.type: is null", [](json& f) { f["model"].erase("type"); }},
      {"model.dropout: is 0.1", [](json& f) { f["model"]["dropout"] = 0.1; }},
      {"model.byte_fallback: is false", [](json& f) { f["model"]["byte_fallback"] = false; }},
      {"model.byte_fallback: is null", [](json& f) { f["model"].erase("byte_fallback"); }},
      {"model.ignore_merges: is true", [](json& f) { f["model"]["ignore_merges"] = true; }},
      {"model.continuing_subword_prefix", [](json& f) { f["model"]["continuing_subword_prefix"] = "##"; }},
      {"model.end_of_word_suffix", [](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }},
      {"\"cache\"", [](json& f) { f["model"]["cache"] = 1; }},
      {"model: is not an object", [](json& f) { f["model"] = nullptr; }},
      {"\"extra\"", [](json& f) { f["extra"] = 1; }},
  });
}

TEST_CASE("Normalizers and pre-tokenizers that are not implemented are named", "[tokenizer_file]") {
  check_bends({
      {"normalizer: is {\"type\":\"NFKC\"}",
       [](json& f) {
         f["normalizer"] = {{"type", "NFKC"}};
       }},
      {"normalizer: is", [](json& f) { f["normalizer"]["content"] = "_"; }},
      {"normalizer: is",
       [](json& f) {
         f["normalizer"]["pattern"] = {{"Regex", " "}};
       }},
      {"normalizer: is 7", [](json& f) { f["normalizer"] = 7; }},
      {"pre_tokenizer: is", [](json& f) { f["normalizer"] = nullptr; }},
      {"pre_tokenizer: is",
       [](json& f) {
         f["pre_tokenizer"] = {{"type", "ByteLevel"}};
       }},
      {"pre_tokenizer: is", [](json& f) { f["pre_tokenizer"]["invert"] = true; }},
      {"pre_tokenizer: is", [](json& f) { f["pre_tokenizer"]["pattern"]["String"] = "a"; }},
  });
}

TEST_CASE("Post-processors that are not implemented or contradict the vocabulary are named",
          "[tokenizer_file]") {
  check_bends({
      {"post_processor: is", [](json& f) { f["post_processor"]["type"] = "BertProcessing"; }},
      {"post_processor: is", [](json& f) { f["post_processor"] = "x"; }},
      {"post_processor: is", [](json& f) { f["post_processor"]["single"] = json::array(); }},
      {"post_processor: is",
       [](json& f) { f["post_processor"]["single"].push_back(f["post_processor"]["single"][0]); }},
      {"post_processor: is", [](json& f) { f["post_processor"]["single"][1]["Sequence"]["id"] = "B"; }},
      {"ids null", [](json& f) { f["post_processor"]["special_tokens"] = json::object(); }},
      {"ids [2,2]",
       [](json& f) {
         f["post_processor"]["special_tokens"]["<bos>"]["ids"] = {2, 2};
       }},
      {"ids [99999999999]",
       [](json& f) { f["post_processor"]["special_tokens"]["<bos>"]["ids"] = {99999999999}; }},
      {"id 1, the vocabulary gives it 2",
       [](json& f) { f["post_processor"]["special_tokens"]["<bos>"]["ids"] = {1}; }},
      {"lacks the token \"<bos>\"",
       [](json& f) {
         f["post_processor"] = nullptr;
         f["model"]["vocab"].erase("<bos>");
         f["added_tokens"].erase(2);
       }},
  });
}

TEST_CASE("Vocabularies with holes in their logic are refused", "[tokenizer_file]") {
  check_bends({
      {"lacks \"<0x0A>\"", [](json& f) { f["model"]["vocab"].erase("<0x0A>"); }},
      {"id 261 to both", [](json& f) { f["model"]["vocab"]["z"] = 261; }},
      {"\"z\" the id 4194304, above the limit of 4194303",
       [](json& f) { f["model"]["vocab"]["z"] = 4194304; }},
      {"\"z\" the id 18446744073709551615", [](json& f) { f["model"]["vocab"]["z"] = ~std::uint64_t{0}; }},
      {"\"z\" something that is no id", [](json& f) { f["model"]["vocab"]["z"] = -1; }},
      {"\"z\" something that is no id", [](json& f) { f["model"]["vocab"]["z"] = 1.5; }},
      {"\"z\" something that is no id", [](json& f) { f["model"]["vocab"]["z"] = "1"; }},
      {"\"z\" something that is no id", [](json& f) { f["model"]["vocab"]["z"] = json::array({1}); }},
      {"an empty piece", [](json& f) { f["model"]["vocab"][""] = 290; }},
      {"model.vocab: is an array", [](json& f) { f["model"]["vocab"] = json::array(); }},
      {"lacks \"vocab\"", [](json& f) { f["model"].erase("vocab"); }},
  });
  check_error(with("\"abc\":265", "\"ab\":265"), "repeats the piece \"ab\"");
}

TEST_CASE("Merges that cannot be are refused with their number", "[tokenizer_file]") {
  const auto third = [](json merge) { return [=](json& f) { f["model"]["merges"][2] = merge; }; };
  check_bends({
      {"model.merges[2]: needs the piece \"q\"", third({"q", "a"})},
      {"model.merges[2]: needs the piece \"r\"", third({"a", "r"})},
      {"model.merges[2]: needs the piece \"aa\"", third({"a", "a"})},
      {"model.merges[2]: repeats model.merges[0]", third({"a", "b"})},
      {"model.merges[2]: has 1 sides", third(json::array({"a"}))},
      {"model.merges[2]: has more than two sides", third({"a", "b", "c"})},
      {"model.merges[2]: has an empty side", third({"a", ""})},
      {"model.merges[2]: is neither", third({"a", 1})},
      {"model.merges[2]: is neither", third({{"a", 1}})},
      {"model.merges[2]: is neither", third(7)},
      {"model.merges[2]: is \"ab\"", third("ab")},
      {"model.merges[2]: is \"a b c\"", third("a b c")},
      {"model.merges[2]: has an empty side", third("a ")},
      {"model.merges: is an object", [](json& f) { f["model"]["merges"] = json::object(); }},
      {"model.merges: is a single value", [](json& f) { f["model"]["merges"] = nullptr; }},
      {"lacks \"merges\"", [](json& f) { f["model"].erase("merges"); }},
  });
}

TEST_CASE("Added tokens of another kind, or at odds with the vocabulary, are refused", "[tokenizer_file]") {
  const auto set = [](const char* key, json value) {
    return [=](json& f) { f["added_tokens"][1][key] = value; };
  };
  check_bends({
      {"added_tokens[1].lstrip: of \"<eos>\" is true", set("lstrip", true)},
      {"added_tokens[1].rstrip", set("rstrip", true)},
      {"added_tokens[1].single_word", set("single_word", true)},
      {"added_tokens[1].normalized", set("normalized", true)},
      {"added_tokens[1].special: is 3", set("special", 3)},
      {"added_tokens[1].id: of \"<eos>\" is -1", set("id", -1)},
      {"added_tokens[1].id: of \"<eos>\" is \"1\"", set("id", "1")},
      {"added_tokens[1].content: is 0 bytes long", set("content", "")},
      {"added_tokens[1].content: is 257 bytes long", set("content", std::string(257, 'x'))},
      {"added_tokens[1].content: is null", set("content", nullptr)},
      {"added_tokens[1].\"colour\"", set("colour", 1)},
      {"added_tokens[1]: \"<eos>\" with id 7 has id 1 in model.vocab", set("id", 7)},
      {"added_tokens[1]: \"<new>\" with id 1 takes the id of \"<eos>\"", set("content", "<new>")},
      {"added_tokens[2]: \"<bos>\" with id 2 repeats",
       [](json& f) { f["added_tokens"][1] = f["added_tokens"][2]; }},
      {"added_tokens[1]: is 5, not an object", [](json& f) { f["added_tokens"][1] = 5; }},
      {"added_tokens: is not an array", [](json& f) { f["added_tokens"] = 5; }},
      {"added_tokens: is an object", [](json& f) { f["added_tokens"] = json::object(); }},
  });
}

TEST_CASE("Repeated keys are refused", "[tokenizer_file]") {
  check_error(with("\"version\":", "\"padding\":null,\"version\":"), "repeats the key \"padding\"");
  check_error(with("\"version\":", "\"model\":{},\"version\":"), "repeats the key \"model\"");
  check_error(with("\"version\":", "\"added_tokens\":[],\"version\":"), "repeats the key \"added_tokens\"");
  check_error(with("\"dropout\":", "\"dropout\":null,\"dropout\":"), "repeats the key \"dropout\"");
  check_error(with("\"merges\":", "\"merges\":[],\"merges\":"), "repeats the key \"merges\"");
  check_error(with("\"vocab\":", "\"vocab\":{},\"vocab\":"), "repeats the key \"vocab\"");
  check_error(with("\"lstrip\":false", "\"lstrip\":false,\"lstrip\":true"), "repeats the key \"lstrip\"");
}

TEST_CASE("Depth and size of the small parts are bounded", "[tokenizer_file]") {
  const std::string open(100'000, '[');
  check_error("{\"decoder\":" + open + "}", "nests deeper than 16");
  check_error(open, "is an array");
  check_error("{\"model\":{\"vocab\":{\"a\":" + open + "}", "no id");
  json long_list = json::array();
  for (int i = 0; i < 10'001; ++i)
    long_list.push_back(i);
  json file = small_tokenizer();
  file["decoder"] = long_list;
  check_error(file.dump(), "decoder: holds more than 10000 values");
}

TEST_CASE("Long and binary pieces are cut and escaped in messages", "[tokenizer_file]") {
  json file = small_tokenizer();
  file["model"]["merges"][0] = {std::string("\n\x01") + std::string(1'000'000, 'x'), "a"};
  const std::string error = error_of(file.dump());
  CHECK(error.find("\"\\x0a\\x01xxx") != std::string::npos);
  CHECK(error.size() < 300);
}
