// What generation works on: an enhancement is one admitted prompt that the model continues.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/job_id.h"
#include "comm/result_store.h"
#include "daemon/model/generation/sampling.h"

namespace gemmad {

/// The picture in a prompt, as the vision tower takes it.
struct PromptImage {
  std::int64_t first_row = 0;        // of the prompt's ids: where its soft tokens begin
  std::vector<std::uint8_t> pixels;  // [X, X, 3] RGB, X = the tower's image_size
};

/// Numbered as jobs are: ids are never used twice. Readers find its text under id and name.
struct Enhancement {
  JobId id = 0;
  std::string name;  // of the client's choosing; may be empty
  std::int64_t readers = 0;
  std::vector<std::int32_t> ids;  // [n], the rendered prompt, soft tokens of the image included
  std::optional<PromptImage> image;
  SamplingParams sampling;
  std::int64_t max_new_tokens = 512;
  bool cleans = true;          // the text through clean_response
  bool guards_circles = true;  // ends with kRepetition when it goes in circles
};

struct QueuedEnhancement {
  Enhancement enhancement;
  std::chrono::steady_clock::time_point submitted;
  std::chrono::steady_clock::time_point deadline;
};

enum class StopReason : std::uint8_t {
  kEnd,         // the model ended its turn
  kLength,      // max_new_tokens
  kRepetition,  // it went in circles; the text is cut where the second round began
};

/// "end", "length", "repetition".
std::string_view name(StopReason reason);

/// New text of one that runs: the tokens since the last time, and the text that they complete (may be empty:
/// a character may take several tokens).
struct GeneratedPiece {
  JobId id = 0;
  std::vector<std::int32_t> ids;
  std::string text;
};

/// What became of one.
struct EnhancementOutcome {
  JobId id = 0;
  bool ok = false;
  JobFailure failure;    // unless ok
  std::string text;      // cleaned, if that was asked for
  std::string raw_text;  // as generated, without special tokens
  StopReason stop = StopReason::kEnd;
  std::int64_t tokens_in = 0;
  std::int64_t tokens_out = 0;  // the one that ended it included
  double queue_ms = 0;          // from submission to its first step
  double prefill_ms = 0;        // from there to its first token
  double decode_ms = 0;         // from there to its last
};

}  // namespace gemmad
