#include "daemon/result_directory.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace gemmad {

// Of the ids alone: selections are few, and equality looks at all.
std::size_t ResultDirectory::Hash::operator()(const PromptKey& key) const {
  const auto* bytes = reinterpret_cast<const char*>(key.ids.data());
  return std::hash<std::string_view>{}({bytes, key.ids.size() * sizeof(std::int32_t)});
}

std::optional<EarlierPrompt> ResultDirectory::find(const PromptKey& key) {
  const auto found = places_.find(key);
  if (found == places_.end()) {
    ++misses_;
    return std::nullopt;
  }
  ++hits_;
  const Place& place = found->second;
  jobs_.splice(jobs_.end(), jobs_, place.job);
  return EarlierPrompt{place.job->job, place.prompt};
}

std::vector<JobId> ResultDirectory::remember(JobId job, std::uint64_t size_bytes,
                                             std::vector<ComputedPrompt> prompts) {
  if (std::any_of(jobs_.begin(), jobs_.end(), [&](const RememberedJob& each) { return each.job == job; }))
    throw std::logic_error("job " + std::to_string(job) + " is remembered already");
  const bool any_new = std::any_of(prompts.begin(), prompts.end(), [&](const ComputedPrompt& prompt) {
    return !places_.contains(prompt.key);
  });
  if (!any_new || size_bytes > max_bytes_ || !on()) return {job};

  std::vector<JobId> forgotten = shrink_to(max_bytes_ - size_bytes);
  const auto entry = jobs_.insert(jobs_.end(), RememberedJob{job, size_bytes, {}});
  bytes_ += size_bytes;
  for (ComputedPrompt& prompt : prompts) {
    const auto [place, is_new] = places_.try_emplace(std::move(prompt.key), Place{entry, prompt.prompt});
    if (is_new) entry->keys.push_back(&place->first);
  }
  return forgotten;
}

std::optional<JobId> ResultDirectory::forget_oldest() {
  if (jobs_.empty()) return std::nullopt;
  const RememberedJob& oldest = jobs_.front();
  for (const PromptKey* key : oldest.keys)
    places_.erase(places_.find(*key));
  bytes_ -= oldest.size_bytes;
  const JobId job = oldest.job;
  jobs_.pop_front();
  return job;
}

std::vector<JobId> ResultDirectory::clear() {
  std::vector<JobId> forgotten;
  while (const auto job = forget_oldest())
    forgotten.push_back(*job);
  return forgotten;
}

std::vector<JobId> ResultDirectory::set_max_bytes(std::uint64_t max_bytes) {
  max_bytes_ = max_bytes;
  return on() ? shrink_to(max_bytes_) : clear();
}

std::vector<JobId> ResultDirectory::shrink_to(std::uint64_t bytes) {
  std::vector<JobId> forgotten;
  while (bytes_ > bytes)
    forgotten.push_back(*forget_oldest());
  return forgotten;
}

ResultDirectory::Counters ResultDirectory::counters() const {
  return {hits_, misses_, bytes_, jobs_.size(), places_.size()};
}

}  // namespace gemmad
