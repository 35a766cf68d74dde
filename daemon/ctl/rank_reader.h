// A reader of the results of one rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/reader/gemmad_reader.h"
#include "daemon/ctl/helper_thread.h"
#include "daemon/ctl/local_ranks.h"

namespace gemmad {

/// What became of reading one result.
struct ReadOutcome {
  std::uint64_t copied_bytes = 0;
  std::string error_code;  // empty: all is well
  std::string error_message;
};

/// Stands in for the transformer process beside a rank: acquires a result, copies it if it is one that
/// copies, and releases it, on a thread of its own. Calls come from one thread.
class RankReader {
 public:
  /// Connects, and where it copies has all pages of the segment at hand, as a process has that registered it
  /// with its GPU.
  /// Throws ClientError.
  RankReader(const LocalRank& rank, bool copies);

  /// Waits for what began before, no longer.
  void begin(std::uint64_t job);
  /// Waits for what began last.
  ReadOutcome end();

  bool copies() const { return buffer_ != nullptr; }

 private:
  ReadOutcome read(std::uint64_t job);
  void copy(const Reader::Tensor& tensor);

  Reader reader_;
  std::unique_ptr<std::byte[]> buffer_;  // null when it does not copy
  std::size_t filled_bytes_ = 0;
  ReadOutcome outcome_;  // the helper's while it works
  HelperThread helper_;  // last: it uses all of the above
};

}  // namespace gemmad
