// A reader of the results of one rank.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "comm/reader/gemmad_reader.h"
#include "daemon/ctl/bench/bench_target.h"

namespace gemmad {

/// What became of reading one result.
struct ReadOutcome {
  std::uint64_t copied_bytes = 0;
  std::string error_code;  // empty: all is well
  std::string error_message;
};

/// Stands in for the transformer process beside a rank: acquires a result, copies it if its rank copies, and
/// releases it, on a thread of its own. Calls come from one thread.
class RankReader {
 public:
  /// Connects and has all pages of the segment at hand, as a process has that registered it with its GPU.
  /// Throws ClientError.
  explicit RankReader(const BenchRank& rank);

  /// Waits for what began before, no longer.
  void begin(std::uint64_t job);
  /// Waits for what began last.
  ReadOutcome end();

  bool copies() const { return buffer_ != nullptr; }

 private:
  void serve(const std::stop_token& stop);
  ReadOutcome read(std::uint64_t job);
  void copy(const Reader::Tensor& tensor);

  Reader reader_;
  std::unique_ptr<std::byte[]> buffer_;  // null when it does not copy
  std::size_t filled_bytes_ = 0;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<std::uint64_t> job_;  // under way
  ReadOutcome outcome_;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace gemmad
