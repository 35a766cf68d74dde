// A tokenizer.json small enough to reason about, as a tree that a test may bend before it is parsed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "daemon/tokenizer/bpe.h"

namespace gemmad::test {

/// Ids of the pieces below.
inline constexpr int kPad = 0, kEos = 1, kBos = 2, kUnk = 3, kFirstByte = 4, kFirstLetter = 260;

using MergeList = std::vector<std::pair<std::string, std::string>>;

inline nlohmann::json added_token(int id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

/// Four control tokens, the 256 byte pieces, then `letters`, then what `merges` make, in this order, without
/// gaps.
inline nlohmann::json tokenizer_of(const std::vector<std::string>& letters, const MergeList& merges) {
  nlohmann::json vocab = nlohmann::json::object();
  int next = 0;
  const auto add = [&](const std::string& piece) {
    if (!vocab.contains(piece)) vocab[piece] = next++;
  };
  for (const char* control : {"<pad>", "<eos>", "<bos>", "<unk>"})
    add(control);
  for (int byte = 0; byte < 256; ++byte)
    add(byte_piece(static_cast<std::uint8_t>(byte)));
  for (const std::string& letter : letters)
    add(letter);
  nlohmann::json merge_list = nlohmann::json::array();
  for (const auto& [left, right] : merges) {
    add(left + right);
    merge_list.push_back({left, right});
  }
  nlohmann::json file;
  file["version"] = "1.0";
  file["truncation"] = nullptr;
  file["padding"] = nullptr;
  file["added_tokens"] = {added_token(kPad, "<pad>"), added_token(kEos, "<eos>"), added_token(kBos, "<bos>"),
                          added_token(kUnk, "<unk>")};
  file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  file["pre_tokenizer"] = {{"type", "Split"},
                           {"pattern", {{"String", " "}}},
                           {"behavior", "MergedWithPrevious"},
                           {"invert", false}};
  file["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<bos>"}, {"type_id", 0}}}},
        {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"special_tokens", {{"<bos>", {{"id", "<bos>"}, {"ids", {kBos}}, {"tokens", {"<bos>"}}}}}}};
  file["decoder"] = nullptr;
  file["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", "<unk>"},
                   {"fuse_unk", true},
                   {"byte_fallback", true},
                   {"ignore_merges", false},
                   {"vocab", vocab},
                   {"merges", merge_list},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr}};
  return file;
}

/// Letters ▁ (260), a (261), b (262), c (263); pieces ab (264), abc (265), ▁a (266).
inline nlohmann::json small_tokenizer() {
  return tokenizer_of({"\u2581", "a", "b", "c"}, {{"a", "b"}, {"ab", "c"}, {"\u2581", "a"}});
}

}  // namespace gemmad::test
