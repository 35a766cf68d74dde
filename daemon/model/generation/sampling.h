// How the next token is chosen from the logits of the last one. On the host, in one thread: the same on every
// device and with any number of ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/model/generation/top_logits.h"
#include "kernels/base/tensor.h"

namespace gemmad {

/// Defaults are LTX-2's for Gemma 3: sampling at temperature 0.7, of the library's top_k.
struct SamplingParams {
  bool greedy = false;       // the largest logit; of equal ones the smallest id
  double temperature = 0.7;  // > 0; logits are divided by it
  std::int64_t top_k = 50;   // those not below the k-th largest stay, ties too; 0: all
  double top_p = 1.0;        // in (0, 1]; of those, by falling probability, as few as sum up to it stay
  std::uint64_t seed = 10;   // the same seed, the same draws
  std::int64_t no_repeat_ngram = 0;  // no run of so many tokens comes twice in the whole sequence; 0: off

  bool operator==(const SamplingParams&) const = default;
};

/// Chooses tokens; keeps memory between calls, nothing else. One caller at a time.
class TokenChooser {
 public:
  /// The token that follows `ids`, the whole sequence with its prompt. `logits`: on the host, [V], F32 or
  /// BF16, finite. `draw` is the number of the token among those generated, from 0: with the seed it
  /// determines the random number. Order of what is done: no_repeat_ngram, temperature, top_k, top_p (spec
  /// gemma-model 2.3). Where no_repeat_ngram forbids everything it forbids nothing. A logit that is not
  /// finite all the same is never chosen. With the candidates by falling probability, of equal ones the
  /// smaller id first, the token is the first up to which they sum up to the random number. Throws
  /// std::invalid_argument for logits of another type or shape, or none that is finite, and for parameters
  /// out of their ranges.
  std::int32_t choose(ConstTensorView logits, std::span<const std::int32_t> ids, const SamplingParams& params,
                      std::uint64_t draw);

  /// The distribution that choose() draws from where it is not greedy, [V]: sums to 1. For tests.
  std::vector<double> distribution(ConstTensorView logits, std::span<const std::int32_t> ids,
                                   const SamplingParams& params);

 private:
  struct Candidate {
    Logit logit;
    double weight = 0;  // exp((logit - the largest) / temperature)
  };

  /// What no_repeat_ngram, where given, and top_k leave, in any order: at least one.
  std::span<const Logit> top(ConstTensorView logits, std::span<const std::int32_t> ids,
                             const SamplingParams& params, std::size_t k);
  /// What all four leave.
  std::span<Candidate> candidates(ConstTensorView logits, std::span<const std::int32_t> ids,
                                  const SamplingParams& params);

  TopLogits finder_;
  std::vector<Logit> top_;
  std::vector<std::int32_t> forbidden_;
  std::vector<Candidate> candidates_;
};

/// The number in [0, 1) that chooses token number `draw`: the upper 53 bits of output number `draw` of
/// splitmix64 whose state starts at mix(seed), where mix is splitmix64's finalizer.
double uniform_draw(std::uint64_t seed, std::uint64_t draw);

}  // namespace gemmad
