#include "daemon/tokenizer/bpe.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "daemon/tokenizer/utf8.h"

namespace gemmad {
namespace {

constexpr std::size_t kShortWord = 32;
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

char32_t first_code_point(std::string_view piece) {
  std::size_t position = 0;
  return read_code_point(piece, position);
}

char32_t last_code_point(std::string_view piece) {
  std::size_t position = piece.size() - 1;
  while ((static_cast<unsigned char>(piece[position]) & 0xC0) == 0x80)
    --position;
  return read_code_point(piece, position);
}

std::uint64_t heap_entry(std::uint32_t rank, std::uint32_t position) {
  return static_cast<std::uint64_t>(rank) << 32 | position;
}

}  // namespace

std::string byte_piece(std::uint8_t byte) {
  constexpr char kHex[] = "0123456789ABCDEF";
  return {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
}

Bpe::Bpe(const Vocabulary& vocabulary, std::span<const Merge> merges, PairTable pairs, bool spaces_to_meta)
    : spaces_to_meta_(spaces_to_meta), pairs_(std::move(pairs)) {
  for (std::int32_t id = 0; id < vocabulary.end_id(); ++id) {
    const std::string_view piece = vocabulary.piece(id);
    if (piece.empty() || piece.size() > 4) continue;
    std::size_t position = 0;
    const char32_t code_point = read_code_point(piece, position);
    if (position == piece.size()) code_point_ids_.set(code_point, id);
  }
  for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    byte_ids_[byte] = vocabulary.find(byte_piece(static_cast<std::uint8_t>(byte)));
  }
  add_junctions(vocabulary, merges);
}

void Bpe::add_junctions(const Vocabulary& vocabulary, std::span<const Merge> merges) {
  std::vector<bool> is_byte(static_cast<std::size_t>(vocabulary.end_id()), false);
  for (const std::int32_t id : byte_ids_)
    is_byte[static_cast<std::size_t>(id)] = true;
  const auto byte = [&](std::int32_t id) { return is_byte[static_cast<std::size_t>(id)]; };
  for (const Merge& merge : merges) {
    junctions_.add(last_code_point(vocabulary.piece(merge.left)),
                   first_code_point(vocabulary.piece(merge.right)));
    bytes_merge_ = bytes_merge_ || byte(merge.left) || byte(merge.right) || byte(merge.result);
  }
}

void Bpe::encode(std::string_view valid_utf8, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  scratch.word.clear();
  char32_t previous = 0;
  for (std::size_t position = 0; position < valid_utf8.size();) {
    char32_t code_point = read_code_point(valid_utf8, position);
    if (code_point == U' ' && spaces_to_meta_) code_point = kMetaSpace;
    const std::int32_t id = code_point_ids_.find(code_point);
    if (id < 0) {
      encode_bytes(code_point, scratch, ids);
      continue;
    }
    if (!scratch.word.empty() && !bytes_merge_ && !junctions_.may_join(previous, code_point)) {
      finish_word(scratch, ids);
    }
    scratch.word.push_back(id);
    previous = code_point;
  }
  finish_word(scratch, ids);
}

void Bpe::encode_bytes(char32_t code_point, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  if (!bytes_merge_) finish_word(scratch, ids);
  std::vector<std::int32_t>& out = bytes_merge_ ? scratch.word : ids;
  std::string utf8;
  append_utf8(utf8, code_point);
  for (const char byte : utf8)
    out.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
}

void Bpe::finish_word(Scratch& scratch, std::vector<std::int32_t>& ids) const {
  if (scratch.word.size() > kShortWord) {
    merge_long(scratch);
  } else if (scratch.word.size() > 1) {
    merge_short(scratch.word);
  }
  ids.insert(ids.end(), scratch.word.begin(), scratch.word.end());
  scratch.word.clear();
}

void Bpe::merge_short(std::vector<std::int32_t>& word) const {
  // ranks[i] belongs to the pair (i, i + 1). Looking at all of them is quicker than a heap at this length.
  std::array<std::uint32_t, kShortWord> ranks;
  std::size_t count = word.size();
  for (std::size_t i = 0; i + 1 < count; ++i)
    ranks[i] = pairs_.rank(word[i], word[i + 1]);
  while (count > 1) {
    const auto lowest =
        std::min_element(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(count - 1));
    if (*lowest == PairTable::kNoRank) break;
    const auto at = static_cast<std::size_t>(lowest - ranks.begin());
    word[at] = pairs_.result(*lowest);
    std::copy(word.begin() + static_cast<std::ptrdiff_t>(at + 2),
              word.begin() + static_cast<std::ptrdiff_t>(count),
              word.begin() + static_cast<std::ptrdiff_t>(at + 1));
    std::copy(lowest + 1, ranks.begin() + static_cast<std::ptrdiff_t>(count - 1), lowest);
    --count;
    if (at > 0) ranks[at - 1] = pairs_.rank(word[at - 1], word[at]);
    if (at + 1 < count) ranks[at] = pairs_.rank(word[at], word[at + 1]);
  }
  word.resize(count);
}

void Bpe::merge_long(Scratch& scratch) const {
  std::vector<std::int32_t>& word = scratch.word;
  const auto count = static_cast<std::uint32_t>(word.size());
  scratch.ranks.assign(count, PairTable::kNoRank);
  scratch.previous.resize(count);
  scratch.next.resize(count);
  scratch.heap.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    scratch.previous[i] = i == 0 ? kNone : i - 1;
    scratch.next[i] = i + 1 == count ? kNone : i + 1;
    if (i + 1 == count) break;
    scratch.ranks[i] = pairs_.rank(word[i], word[i + 1]);
    if (scratch.ranks[i] != PairTable::kNoRank) scratch.heap.push_back(heap_entry(scratch.ranks[i], i));
  }
  std::vector<std::uint64_t>& heap = scratch.heap;
  std::make_heap(heap.begin(), heap.end(), std::greater<>());

  const auto rank_again = [&](std::uint32_t at) {
    const std::uint32_t right = scratch.next[at];
    scratch.ranks[at] = right == kNone ? PairTable::kNoRank : pairs_.rank(word[at], word[right]);
    if (scratch.ranks[at] == PairTable::kNoRank) return;
    heap.push_back(heap_entry(scratch.ranks[at], at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    const std::uint64_t entry = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto rank = static_cast<std::uint32_t>(entry >> 32);
    const auto at = static_cast<std::uint32_t>(entry);
    if (scratch.ranks[at] != rank) continue;  // the pair has changed since
    const std::uint32_t gone = scratch.next[at];
    word[at] = pairs_.result(rank);
    scratch.ranks[gone] = PairTable::kNoRank;
    scratch.next[at] = scratch.next[gone];
    if (scratch.next[at] != kNone) scratch.previous[scratch.next[at]] = at;
    rank_again(at);
    if (scratch.previous[at] != kNone) rank_again(scratch.previous[at]);
  }

  std::size_t kept = 0;
  for (std::uint32_t i = 0; i != kNone; i = scratch.next[i])
    word[kept++] = word[i];
  word.resize(kept);
}

}  // namespace gemmad
