// What rank 0 tells the other ranks to do next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/generation_order.h"
#include "daemon/job.h"
#include "daemon/order.h"

namespace gemmad {

enum class AnnouncementKind : std::uint8_t {
  kHeartbeat,  // exchange states
  kBatch,      // run `batch`
  kOrder,      // carry out `order`
  kGenerate,   // a step of `generation`
  kTexts,      // publish `texts`
  kRest,       // give the memory of generation back
  kStop,       // leave
};

struct Announcement {
  AnnouncementKind kind = AnnouncementKind::kHeartbeat;
  Batch batch;                    // of kBatch
  Order order;                    // of kOrder
  GenerationOrder generation;     // of kGenerate
  std::vector<TextNotice> texts;  // of kTexts
  std::vector<JobId> forget;      // of every kind, before all else: kept results that are needed no more
};

/// Bytes for Bootstrap::announce. Ranks run the same build, so the format has a version only to find out
/// otherwise.
std::vector<std::byte> encode_announcement(const Announcement& announcement);

/// Throws CodecError for anything that encode_announcement of this build did not write.
Announcement decode_announcement(std::span<const std::byte> bytes);

}  // namespace gemmad
