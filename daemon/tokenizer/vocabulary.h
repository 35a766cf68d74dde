// Pieces and their ids, both ways.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gemmad {

/// A table of distinct, non-empty pieces with distinct ids. Gaps between ids are allowed.
class Vocabulary {
 public:
  /// Bounds what a file can make us reserve; Gemma's own ids end below 2^19.
  static constexpr std::int32_t kMaxId = (1 << 22) - 1;

  enum class Added { kDone, kPieceTaken, kIdTaken };

  /// Adds a piece unless it or its id is there already. `piece` is copied and not empty, 0 <= id <= kMaxId.
  Added add(std::string_view piece, std::int32_t id);

  /// The id of `piece`, or -1. O(1).
  std::int32_t find(std::string_view piece) const;

  /// The piece of `id`; empty when there is none. Lives until the next add.
  std::string_view piece(std::int32_t id) const;

  /// 1 + the largest id, 0 when empty.
  std::int32_t end_id() const { return static_cast<std::int32_t>(pieces_.size()); }

 private:
  struct Span {
    std::uint32_t offset = 0;
    std::uint32_t size_bytes = 0;
  };
  struct Slot {
    std::uint32_t hash = 0;
    std::int32_t id = -1;
  };

  /// The slot that holds `piece`, or the empty one where it belongs.
  std::size_t find_slot(std::string_view piece, std::uint32_t hash) const;
  void grow();

  std::string text_;          // all pieces, one behind the other
  std::vector<Span> pieces_;  // by id
  std::vector<Slot> slots_;   // open addressing, a power of two, at most half full
  std::size_t num_pieces_ = 0;
};

}  // namespace gemmad
