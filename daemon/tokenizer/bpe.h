// Byte pair encoding of text in which no added token is left.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/tokenizer/code_points.h"
#include "daemon/tokenizer/pair_table.h"
#include "daemon/tokenizer/vocabulary.h"

namespace gemmad {

/// U+2581, which stands for a space in pieces.
inline constexpr char32_t kMetaSpace = 0x2581;

/// Symbols, at first one a code point (or one a byte, where the code point has no piece of its own), merge by
/// rank, ties from the left, until no two neighbours merge. Immutable.
///
/// A merge can only ever cover the seam between two symbols if some merge joins exactly these two code points
/// at its own seam. Where none does, the text is cut: the parts cannot influence each other, and short parts
/// are cheap.
class Bpe {
 public:
  /// Memory for one thread, so that a text of many parts allocates once.
  struct Scratch {
    std::vector<std::int32_t> word;
    std::vector<std::uint32_t> ranks;
    std::vector<std::uint32_t> previous;
    std::vector<std::uint32_t> next;
    std::vector<std::uint64_t> heap;
  };

  /// `vocabulary` holds the model's pieces, without added tokens, among them "<0x00>" to "<0xFF>".
  /// `merges` are in order of rank, ids from `vocabulary`; `pairs` holds just these.
  /// With `spaces_to_meta`, U+0020 is read as U+2581.
  Bpe(const Vocabulary& vocabulary, std::span<const Merge> merges, PairTable pairs, bool spaces_to_meta);

  /// Appends the ids of `valid_utf8` (well-formed, below 2^32 bytes) to `ids`. O(n log n).
  void encode(std::string_view valid_utf8, Scratch& scratch, std::vector<std::int32_t>& ids) const;

 private:
  void add_junctions(const Vocabulary& vocabulary, std::span<const Merge> merges);
  void encode_bytes(char32_t code_point, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  /// Merges scratch.word, appends what is left of it to `ids`, and empties it.
  void finish_word(Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void merge_short(std::vector<std::int32_t>& word) const;
  void merge_long(Scratch& scratch) const;

  bool spaces_to_meta_;
  bool bytes_merge_ = false;  // some merge takes or makes a byte piece: then nothing may be cut
  CodePointIds code_point_ids_;
  JunctionFilter junctions_;
  std::array<std::int32_t, 256> byte_ids_{};
  PairTable pairs_;
};

/// "<0x0A>" for 10.
std::string byte_piece(std::uint8_t byte);

}  // namespace gemmad
