#include "comm/job_id_set.h"

#include <iterator>
#include <limits>

namespace gemmad {

void JobIdSet::insert(JobId id) {
  if (contains(id)) return;
  JobId first = id;
  JobId last = id;
  const auto next = last_of_first_.upper_bound(id);
  if (next != last_of_first_.end() && next->first == id + 1) {
    last = next->second;
    last_of_first_.erase(next);
  }
  const auto after = last_of_first_.upper_bound(id);
  if (after != last_of_first_.begin() && std::prev(after)->second == id - 1) {
    first = std::prev(after)->first;
  }
  last_of_first_[first] = last;

  if (last_of_first_.size() <= max_ranges_ || last_of_first_.size() < 2) return;
  const auto lowest = last_of_first_.begin();
  const auto second = std::next(lowest);
  lowest->second = second->second;
  last_of_first_.erase(second);
}

bool JobIdSet::contains(JobId id) const {
  const auto after = last_of_first_.upper_bound(id);
  return after != last_of_first_.begin() && id <= std::prev(after)->second;
}

}  // namespace gemmad
