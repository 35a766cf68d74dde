#include "daemon/model/generation/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

namespace gemmad {
namespace {

constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

void check(const SamplingParams& params) {
  const auto require = [](bool holds, const char* name, const std::string& value, const char* range) {
    if (!holds) throw std::invalid_argument(std::string(name) + " is " + value + ", must be " + range);
  };
  require(params.temperature > 0 && std::isfinite(params.temperature), "temperature",
          std::to_string(params.temperature), "above 0 and finite");
  require(params.top_k >= 0, "top_k", std::to_string(params.top_k), "0 or more");
  require(params.top_p > 0 && params.top_p <= 1, "top_p", std::to_string(params.top_p),
          "above 0 and at most 1");
  require(params.no_repeat_ngram >= 0, "no_repeat_ngram", std::to_string(params.no_repeat_ngram),
          "0 or more");
}

/// Sets `forbidden` to the ids, sorted, that would end a run of `n` which is in `ids` already.
void find_forbidden(std::span<const std::int32_t> ids, std::size_t n, std::vector<std::int32_t>& forbidden) {
  forbidden.clear();
  if (n == 0 || ids.size() < n) return;
  const auto last = ids.last(n - 1);
  for (std::size_t end = n - 1; end < ids.size(); ++end) {
    if (std::equal(last.begin(), last.end(), ids.begin() + static_cast<std::ptrdiff_t>(end - (n - 1))))
      forbidden.push_back(ids[end]);
  }
  std::sort(forbidden.begin(), forbidden.end());
  forbidden.erase(std::unique(forbidden.begin(), forbidden.end()), forbidden.end());
}

constexpr auto kWeight = [](double sum, const auto& candidate) { return sum + candidate.weight; };

/// Moves to the front of `all` the fewest, by falling logit and rising id and at least one, behind which no
/// more weight than `rest` is left; their number. The last of them is in its place. Linear time: of more than
/// a few, only that half is looked at again in which the cut lies.
template <typename Candidate>
std::size_t move_leading(std::span<Candidate> all, double rest) {
  constexpr std::ptrdiff_t kFew = 64;
  const auto before = [](const Candidate& a, const Candidate& b) { return is_before(a.logit, b.logit); };
  auto begin = all.begin();
  auto end = all.end();
  double behind = 0;
  while (end - begin > kFew) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, before);
    const double with_half = std::accumulate(middle, end, behind, kWeight);
    if (with_half <= rest) {
      end = middle;
      behind = with_half;
    } else {
      begin = middle;
    }
  }
  std::sort(begin, end, before);
  while (end - all.begin() > 1 && behind + (end - 1)->weight <= rest) {
    --end;
    behind += end->weight;
  }
  return static_cast<std::size_t>(end - all.begin());
}

}  // namespace

double uniform_draw(std::uint64_t seed, std::uint64_t draw) {
  constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;
  return static_cast<double>(mix(mix(seed) + (draw + 1) * kStep) >> 11) * 0x1p-53;
}

std::span<const Logit> TokenChooser::top(ConstTensorView logits, std::span<const std::int32_t> ids,
                                         const SamplingParams& params, std::size_t k) {
  find_forbidden(ids, static_cast<std::size_t>(params.no_repeat_ngram), forbidden_);
  // Among so many more there are k that are allowed, where there are so many.
  finder_.find(logits, k == 0 ? 0 : k + forbidden_.size(), top_);
  if (top_.empty()) throw std::invalid_argument("none of the logits " + logits.shape.text() + " is finite");
  const auto is_forbidden = [this](const Logit& logit) {
    return std::binary_search(forbidden_.begin(), forbidden_.end(), logit.id);
  };
  if (!forbidden_.empty() && !std::all_of(top_.begin(), top_.end(), is_forbidden))
    std::erase_if(top_, is_forbidden);
  if (k > 0) keep_largest(top_, k);
  return top_;
}

std::span<TokenChooser::Candidate> TokenChooser::candidates(ConstTensorView logits,
                                                            std::span<const std::int32_t> ids,
                                                            const SamplingParams& params) {
  const auto found = top(logits, ids, params, static_cast<std::size_t>(params.top_k));
  const double largest = std::min_element(found.begin(), found.end(), is_before)->value;
  candidates_.clear();
  double total = 0;
  for (const Logit& logit : found) {
    const double weight = std::exp((logit.value - largest) / params.temperature);
    candidates_.push_back({logit, weight});
    total += weight;
  }
  const std::span<Candidate> all(candidates_);
  return params.top_p < 1 ? all.first(move_leading(all, (1 - params.top_p) * total)) : all;
}

std::int32_t TokenChooser::choose(ConstTensorView logits, std::span<const std::int32_t> ids,
                                  const SamplingParams& params, std::uint64_t draw) {
  check(params);
  if (params.greedy) {
    const auto found = top(logits, ids, params, 1);
    return std::min_element(found.begin(), found.end(), is_before)->id;
  }
  const std::span<Candidate> left = candidates(logits, ids, params);
  const double total = std::accumulate(left.begin(), left.end(), 0.0, kWeight);
  const std::size_t chosen = move_leading(left, (1 - uniform_draw(params.seed, draw)) * total);
  return left[chosen - 1].logit.id;
}

std::vector<double> TokenChooser::distribution(ConstTensorView logits, std::span<const std::int32_t> ids,
                                               const SamplingParams& params) {
  check(params);
  const std::span<Candidate> left = candidates(logits, ids, params);
  const double total = std::accumulate(left.begin(), left.end(), 0.0, kWeight);
  std::vector<double> probabilities(static_cast<std::size_t>(logits.shape[0]));
  for (const Candidate& candidate : left)
    probabilities[static_cast<std::size_t>(candidate.logit.id)] = candidate.weight / total;
  return probabilities;
}

}  // namespace gemmad
