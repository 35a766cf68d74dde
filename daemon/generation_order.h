// What rank 0 tells all ranks about the sequences that they continue, and what they say to it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/enhancement.h"

namespace gemmad {

/// A sequence that begins, or begins anew after the memory of all was given up.
struct SequenceStart {
  JobId id = 0;
  std::int32_t replica = 0;         // of the plan's, that continues it
  std::vector<std::int32_t> ids;    // the prompt, and what was generated before
  std::uint64_t num_generated = 0;  // of `ids`, the last ones
  std::optional<PromptImage> image;
  SamplingParams sampling;
};

/// One step: all that changes before it, then one pass in every replica that has a sequence.
struct GenerationOrder {
  std::vector<JobId> ends;
  std::vector<SequenceStart> begins;
};

/// What became of one sequence in a step.
struct SequenceNews {
  enum class Kind : std::uint8_t {
    kToken,   // `token` follows
    kLooked,  // its image has been looked at
    kFailed,  // it cannot go on; the report says why
  };
  JobId id = 0;
  Kind kind = Kind::kToken;
  std::int32_t token = 0;
};

/// The same on every rank. Sequences that it does not name are on their way to their next token.
struct StepReport {
  std::vector<SequenceNews> news;
  std::string error;  // of those that failed
};

/// A text for the readers of all ranks, or why there is none.
struct TextNotice {
  JobId id = 0;
  std::string name;
  std::int64_t readers = 0;  // as of jobs
  bool ok = false;
  std::string text;    // where ok
  JobFailure failure;  // else
};

}  // namespace gemmad
