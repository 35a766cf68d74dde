#include "daemon/tokenizer/vocabulary.h"

#include <functional>
#include <utility>

namespace gemmad {
namespace {

std::uint32_t hash_of(std::string_view piece) {
  return static_cast<std::uint32_t>(std::hash<std::string_view>{}(piece));
}

}  // namespace

std::size_t Vocabulary::find_slot(std::string_view piece_text, std::uint32_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  while (slots_[at].id >= 0 && !(slots_[at].hash == hash && piece(slots_[at].id) == piece_text)) {
    at = (at + 1) & mask;
  }
  return at;
}

void Vocabulary::grow() {
  std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots_.empty() ? 1024 : slots_.size() * 2));
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.id < 0) continue;
    std::size_t at = slot.hash & mask;
    while (slots_[at].id >= 0)
      at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

Vocabulary::Added Vocabulary::add(std::string_view piece_text, std::int32_t id) {
  if (2 * (num_pieces_ + 1) > slots_.size()) grow();
  const std::uint32_t hash = hash_of(piece_text);
  const std::size_t at = find_slot(piece_text, hash);
  if (slots_[at].id >= 0) return Added::kPieceTaken;
  if (!piece(id).empty()) return Added::kIdTaken;

  const auto index = static_cast<std::size_t>(id);
  if (index >= pieces_.size()) pieces_.resize(index + 1);
  pieces_[index] = {static_cast<std::uint32_t>(text_.size()), static_cast<std::uint32_t>(piece_text.size())};
  text_ += piece_text;
  slots_[at] = {hash, id};
  ++num_pieces_;
  return Added::kDone;
}

std::int32_t Vocabulary::find(std::string_view piece_text) const {
  return slots_.empty() ? -1 : slots_[find_slot(piece_text, hash_of(piece_text))].id;
}

std::string_view Vocabulary::piece(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= pieces_.size()) return {};
  const Span& span = pieces_[static_cast<std::size_t>(id)];
  return std::string_view(text_).substr(span.offset, span.size_bytes);
}

}  // namespace gemmad
