// What a tokenizer.json says, checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/tokenizer/added_tokens.h"
#include "daemon/tokenizer/pair_table.h"
#include "daemon/tokenizer/vocabulary.h"

namespace gemmad {

/// Holds: every id is in the vocabulary or among the added tokens, no id has two names and no name two ids,
/// all 256 byte pieces are there, no pair merges twice.
struct TokenizerFile {
  Vocabulary vocabulary;                 ///< the model's pieces
  std::vector<Merge> merges;             ///< by rank, ids from the vocabulary
  PairTable pairs;                       ///< the same merges, to look up
  std::vector<AddedToken> added_tokens;  ///< some of them in the vocabulary too, with the same id
  bool spaces_to_meta = false;           ///< the normalizer makes U+2581 of spaces
  bool adds_bos = false;                 ///< the post-processor puts bos_id in front
  std::int32_t bos_id = 0;
};

/// Longest file that is read.
inline constexpr std::size_t kMaxTokenizerFileBytes = std::size_t{256} << 20;

/// The bytes of a regular file. Throws TokenizerError when it cannot be read or is longer than the limit.
std::string read_tokenizer_bytes(const std::filesystem::path& path);

/// Parses and checks. `source_name` stands for the file in messages. Throws TokenizerError.
TokenizerFile parse_tokenizer_file(std::string_view json, const std::string& source_name);

}  // namespace gemmad
