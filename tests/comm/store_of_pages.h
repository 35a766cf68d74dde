// A small store of results that a test looks into.
#pragma once

#include <chrono>
#include <cstdint>

#include "comm/result_store.h"
#include "comm/segment_layout.h"

namespace gemmad {

inline constexpr std::uint64_t kPage = 4096;
inline constexpr std::chrono::milliseconds kTtl{1000};
inline constexpr ConnectionId kReader = 1;

/// Of eight pages, with a time to live of kTtl and a clock that the test moves.
struct StoreOfPages {
  /// `options` but for their time to live.
  explicit StoreOfPages(ResultStore::Options options = {})
      : store(segment, with_ttl(options), [this] { return now; }) {}

  std::chrono::steady_clock::time_point now = std::chrono::steady_clock::time_point(std::chrono::hours(1));
  Segment segment = Segment::create(kSegmentHeaderBytes + 8 * kPage, 0);
  ResultStore store;

 private:
  static ResultStore::Options with_ttl(ResultStore::Options options) {
    options.ttl = kTtl;
    return options;
  }
};

}  // namespace gemmad
