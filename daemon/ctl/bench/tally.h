// What the requests of a benchmark came to.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace gemmad {

/// A request that succeeded. Of its time `total_ms`, the daemon spent the other three on its behalf.
struct DoneRequest {
  double total_ms = 0;
  double queue_ms = 0;
  double compute_ms = 0;
  double deliver_ms = 0;
  std::int64_t prompts = 0;
  std::int64_t tokens = 0;
  std::uint64_t reader_bytes = 0;
  std::string cut;  // "deal" or "split"; empty where the daemon does not say
};

struct FailedRequests {
  std::int64_t count = 0;
  std::string message;  // of the first
};

struct TallyTotals {
  std::vector<double> request_ms;  // of each that succeeded, in the order of their ends
  DoneRequest sum;                 // of them; its `cut` is empty
  std::map<std::string, std::int64_t> cuts;
  std::map<std::string, FailedRequests> failures;  // by error code

  std::int64_t num_done() const { return static_cast<std::int64_t>(request_ms.size()); }
  std::int64_t num_failed() const;
};

/// Thread-safe.
class Tally {
 public:
  void add(const DoneRequest& request);
  void fail(const std::string& code, const std::string& message);

  std::int64_t num_done() const;
  std::int64_t num_failed() const;
  TallyTotals totals() const;

 private:
  mutable std::mutex mutex_;
  TallyTotals totals_;
};

}  // namespace gemmad
