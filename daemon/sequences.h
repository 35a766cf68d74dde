// The sequences that one replica continues, and what it does next with them. Every rank of the replica keeps
// the same ones and comes to the same pass.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/generation_order.h"

namespace gemmad {

struct Sequence {
  SequenceStart start;            // its ids grow
  std::int32_t slot = 0;          // of the cache
  std::int64_t num_cached = 0;    // of its ids, the first ones
  std::int64_t image_tokens = 0;  // soft tokens of its image; 0: none
  bool is_looked_at = false;      // its image, if it has one

  std::int64_t num_left() const { return static_cast<std::int64_t>(start.ids.size()) - num_cached; }
  /// All but its last token is in the cache.
  bool is_ready() const { return num_left() == 1; }
  /// The first position that the token at `position` does not see: tokens of an image see all of it.
  std::int64_t first_unseen(std::int64_t position) const {
    if (!start.image || position < start.image->first_row) return position + 1;
    return std::max(position + 1, start.image->first_row + image_tokens);
  }
  /// Whether the image's tokens are among those of [begin, end).
  bool image_holds(std::int64_t begin, std::int64_t end) const {
    return start.image && begin <= start.image->first_row && start.image->first_row < end;
  }
  bool must_look() const { return image_tokens > 0 && !is_looked_at; }
};

/// What a replica computes in one step.
struct Pass {
  enum class Kind : std::uint8_t { kNone, kLook, kPrefill, kDecode };
  Kind kind = Kind::kNone;
  std::vector<Sequence*> sequences;  // one, but for kDecode
  std::int64_t begin = 0;            // of kPrefill: rows of its ids
  std::int64_t end = 0;
};

class Sequences {
 public:
  /// `chunk_rows`: rows that cost about as much as one. `image_tokens`: soft tokens of an image, which come
  /// in one chunk: of up to chunk_rows + image_tokens.
  Sequences(std::int64_t num_slots, std::int64_t chunk_rows, std::int64_t image_tokens);

  /// Takes a free slot. Throws std::logic_error without one, and for a sequence without ids.
  void begin(SequenceStart start);
  /// Nothing happens where there is none.
  void end(JobId id);

  /// The oldest sequence that is not ready comes on by a look at its image or a chunk of its prompt, or all
  /// that are ready by a token: by turns, where there are both. Pointers are valid until the next begin or
  /// end.
  Pass next_pass();
  /// What a pass or its news have brought about.
  void prefilled(const Pass& pass);
  void hear(const SequenceNews& news);

  bool empty() const { return sequences_.empty(); }

 private:
  Sequence* find(JobId id);
  std::int64_t chunk_end(const Sequence& sequence) const;

  std::int64_t chunk_rows_;
  std::int64_t image_tokens_;
  std::vector<bool> slot_is_taken_;
  std::vector<Sequence> sequences_;  // by age
  bool decoded_last_ = false;
};

}  // namespace gemmad
