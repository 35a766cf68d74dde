// Notices a model that goes in circles: left alone, it does so until it may say no more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace gemmad {

/// Watches generated ids as they come. They go in circles when the last of them are the same kMinRounds
/// rounds or more, each of at most kMaxPeriod ids, over at least kMinIds ids; one id alone, over kMinSameIds.
/// Lists whose entries differ, refrains and chants of a line or two are shorter than that.
class RepetitionGuard {
 public:
  static constexpr std::size_t kMaxPeriod = 64;
  static constexpr std::int64_t kMinRounds = 3;
  static constexpr std::int64_t kMinIds = 32;
  static constexpr std::int64_t kMinSameIds = 24;

  /// Takes the next id. The index, counted from 0, of the first generated id that is to be cut, the first of
  /// the second round, as soon as the ids go in circles and as long as they do. Constant time and memory.
  std::optional<std::int64_t> push(std::int32_t id);

 private:
  std::array<std::int32_t, kMaxPeriod> recent_{};  // id i at i % kMaxPeriod
  std::array<std::int64_t, kMaxPeriod + 1>
      equal_{};  // by period: so many of the last ids are the one a period before
  std::int64_t count_ = 0;
};

}  // namespace gemmad
