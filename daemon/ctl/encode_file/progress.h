// How far a run is, in numbers and in words.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

namespace gemmad {

struct ProgressCounts {
  std::int64_t total = 0;    // lines
  std::int64_t encoded = 0;  // saved by this run
  std::int64_t there = 0;    // were there before
  std::int64_t skipped = 0;
  std::int64_t tokens = 0;  // of those encoded

  std::int64_t done() const { return encoded + there + skipped; }
};

/// Counts as threads go on. Thread-safe.
class Progress {
 public:
  explicit Progress(std::int64_t total) : total_(total) {}
  void add_encoded(std::int64_t tokens) {
    tokens_ += tokens;
    ++encoded_;
  }
  void add_there() { ++there_; }
  void add_skipped() { ++skipped_; }
  ProgressCounts counts() const { return {total_, encoded_, there_, skipped_, tokens_}; }

 private:
  const std::int64_t total_;
  std::atomic<std::int64_t> encoded_ = 0;
  std::atomic<std::int64_t> there_ = 0;
  std::atomic<std::int64_t> skipped_ = 0;
  std::atomic<std::int64_t> tokens_ = 0;
};

/// What this run encodes in a second; 0 before it has begun. Files that were there before do not count.
struct Rates {
  double prompts = 0;
  double tokens = 0;
};
Rates rates_of(const ProgressCounts& counts, std::chrono::duration<double> elapsed);

/// "1234/100000 prompts, 56.7 prompts/s, 6789 tokens/s, 29 min left"
std::string progress_text(const ProgressCounts& counts, std::chrono::duration<double> elapsed);

/// "[=====>    ]" with `width` characters between the brackets.
std::string progress_bar(const ProgressCounts& counts, int width);

/// "45 s", "12 min", "3 h 20 min"
std::string duration_text(std::chrono::duration<double> duration);

}  // namespace gemmad
