#include "daemon/sequences.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace gemmad {

Sequences::Sequences(std::int64_t num_slots, std::int64_t chunk_rows, std::int64_t image_tokens)
    : chunk_rows_(chunk_rows),
      image_tokens_(image_tokens),
      slot_is_taken_(static_cast<std::size_t>(num_slots), false) {}

void Sequences::begin(SequenceStart start) {
  const auto slot = std::find(slot_is_taken_.begin(), slot_is_taken_.end(), false);
  if (slot == slot_is_taken_.end()) throw std::logic_error("no slot is free for another sequence");
  if (start.ids.empty()) throw std::logic_error("a sequence needs a token to go on from");
  *slot = true;
  Sequence sequence;
  sequence.slot = static_cast<std::int32_t>(slot - slot_is_taken_.begin());
  sequence.image_tokens = start.image ? image_tokens_ : 0;
  sequence.start = std::move(start);
  sequences_.push_back(std::move(sequence));
}

void Sequences::end(JobId id) {
  const Sequence* const sequence = find(id);
  if (sequence == nullptr) return;
  slot_is_taken_[static_cast<std::size_t>(sequence->slot)] = false;
  sequences_.erase(sequences_.begin() + (sequence - sequences_.data()));
}

Pass Sequences::next_pass() {
  Pass decode{Pass::Kind::kDecode, {}, 0, 0};
  Sequence* unready = nullptr;
  for (Sequence& sequence : sequences_) {
    if (sequence.is_ready() && !sequence.must_look()) {
      decode.sequences.push_back(&sequence);
    } else if (unready == nullptr) {
      unready = &sequence;
    }
  }
  const bool decodes = !decode.sequences.empty() && (unready == nullptr || !decoded_last_);
  decoded_last_ = decodes;
  if (decodes) return decode;
  if (unready == nullptr) return {};
  if (unready->must_look()) return {Pass::Kind::kLook, {unready}, 0, 0};
  return {Pass::Kind::kPrefill, {unready}, unready->num_cached, chunk_end(*unready)};
}

/// Before the last token, which is decoded, and not inside an image. A few rows before and behind an image
/// come with it: a pass of their own would cost as much as many.
std::int64_t Sequences::chunk_end(const Sequence& sequence) const {
  const std::int64_t begin = sequence.num_cached;
  const std::int64_t last = begin + sequence.num_left() - 1;
  const std::int64_t end = std::min(begin + chunk_rows_, last);
  if (!sequence.start.image) return end;
  const std::int64_t image_begin = sequence.start.image->first_row;
  const std::int64_t image_end = image_begin + sequence.image_tokens;
  if (end <= image_begin || begin >= image_end) return end;
  if (image_begin - begin > chunk_rows_ / 2) return image_begin;
  return std::min(std::max(end, image_end + chunk_rows_ / 2), last);
}

void Sequences::prefilled(const Pass& pass) {
  pass.sequences.front()->num_cached = pass.end;
}

void Sequences::hear(const SequenceNews& news) {
  Sequence* const sequence = find(news.id);
  if (sequence == nullptr) return;
  switch (news.kind) {
    case SequenceNews::Kind::kToken:
      sequence->num_cached = static_cast<std::int64_t>(sequence->start.ids.size());
      sequence->start.ids.push_back(news.token);
      ++sequence->start.num_generated;
      break;
    case SequenceNews::Kind::kLooked:
      sequence->is_looked_at = true;
      break;
    case SequenceNews::Kind::kFailed:
      end(news.id);
      break;
  }
}

Sequence* Sequences::find(JobId id) {
  const auto found = std::find_if(sequences_.begin(), sequences_.end(),
                                  [&](const Sequence& sequence) { return sequence.start.id == id; });
  return found == sequences_.end() ? nullptr : &*found;
}

}  // namespace gemmad
