// A set of job ids in bounded memory.
#pragma once

#include <cstddef>
#include <map>

#include "comm/job_id.h"

namespace gemmad {

/// Ids as ranges: as ids rise and nearly all are added in the end, few ranges remain. Above `max_ranges` the
/// lowest gap is closed, so that the oldest ids missing so far count as members from then on. Not thread
/// safe.
class JobIdSet {
 public:
  explicit JobIdSet(std::size_t max_ranges) : max_ranges_(max_ranges) {}

  void insert(JobId id);
  bool contains(JobId id) const;
  std::size_t num_ranges() const { return last_of_first_.size(); }

 private:
  std::size_t max_ranges_;
  std::map<JobId, JobId> last_of_first_;  // first -> last, both members; no two ranges touch
};

}  // namespace gemmad
