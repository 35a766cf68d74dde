// What the daemon works on: a job is one admitted encode request; jobs that run together are a batch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/job_id.h"
#include "config/processor_config.h"

namespace gemmad {

/// Which tensors of each prompt are delivered. Indices are those of `hidden_states.L`: 0 .. num_layers.
struct OutputSelection {
  std::vector<std::int64_t> hidden_states;  // rising, each once
  bool last_hidden_state = false;
  bool features = false;  // of the modalities that are chosen
  bool embeddings = false;
  std::array<bool, 2> modalities{true, true};  // by Modality

  bool wants(Modality modality) const { return modalities[static_cast<std::size_t>(modality)]; }
  bool needs_processor() const { return features || embeddings; }

  bool operator==(const OutputSelection&) const = default;
};

/// A prompt of an earlier job: the `prompt`-th of its request.
struct EarlierPrompt {
  JobId job = 0;
  std::size_t prompt = 0;

  bool operator==(const EarlierPrompt&) const = default;
};

/// One prompt, tokenized. A prompt with an `error_code` is not computed; it fails alone.
struct JobPrompt {
  std::vector<std::int32_t> ids;  // [n], 1 <= n <= max_tokens, or empty when it failed
  bool truncated = false;
  std::optional<EarlierPrompt> earlier;  // whose result, kept by all ranks, is this one's too
  std::string error_code;
  std::string error_message;

  bool ok() const { return error_code.empty(); }
  bool is_computed() const { return ok() && !earlier; }
  /// Tokens that the ranks compute.
  std::int64_t num_computed_tokens() const {
    return is_computed() ? static_cast<std::int64_t>(ids.size()) : 0;
  }
};

/// How a client wants its job spread where the mode leaves the choice (adaptive).
enum class Preference : std::uint8_t { kNone, kDeal, kSplit };

struct Job {
  JobId id = 0;
  std::string name;  // of the client's choosing; may be empty
  Preference prefer = Preference::kNone;
  std::int64_t readers = 0;  // of each place that will come for it; 0: as many as the segments are made for
  OutputSelection outputs;
  std::vector<JobPrompt> prompts;
  bool is_kept = false;  // its results stay, for prompts that come again, until a batch forgets them

  /// That the ranks compute.
  std::int64_t num_tokens() const {
    std::int64_t sum = 0;
    for (const JobPrompt& prompt : prompts)
      sum += prompt.num_computed_tokens();
    return sum;
  }
};

/// A job that ended before it ran (its deadline passed, it was cancelled): its readers wait on every rank and
/// must hear.
struct FailureNotice {
  JobId id = 0;
  std::string name;
  std::string code;
  std::string message;
};

struct Batch {
  std::vector<Job> jobs;  // in the order of their arrival
  std::vector<FailureNotice> failures;
};

}  // namespace gemmad
