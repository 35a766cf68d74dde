#include "daemon/ctl/bench/tally.h"

namespace gemmad {

std::int64_t TallyTotals::num_failed() const {
  std::int64_t num = 0;
  for (const auto& [code, failed] : failures)
    num += failed.count;
  return num;
}

void Tally::add(const DoneRequest& request) {
  const std::lock_guard lock(mutex_);
  totals_.request_ms.push_back(request.total_ms);
  totals_.sum.total_ms += request.total_ms;
  totals_.sum.queue_ms += request.queue_ms;
  totals_.sum.compute_ms += request.compute_ms;
  totals_.sum.deliver_ms += request.deliver_ms;
  totals_.sum.prompts += request.prompts;
  totals_.sum.tokens += request.tokens;
  totals_.sum.reader_bytes += request.reader_bytes;
  if (!request.cut.empty()) ++totals_.cuts[request.cut];
}

void Tally::fail(const std::string& code, const std::string& message) {
  const std::lock_guard lock(mutex_);
  FailedRequests& failed = totals_.failures[code];
  if (failed.count++ == 0) failed.message = message;
}

std::int64_t Tally::num_done() const {
  const std::lock_guard lock(mutex_);
  return totals_.num_done();
}

std::int64_t Tally::num_failed() const {
  const std::lock_guard lock(mutex_);
  return totals_.num_failed();
}

TallyTotals Tally::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

}  // namespace gemmad
