// From an encode request to a job: tokenizes, checks ids, cuts. Errors of one prompt stay with that prompt.
#pragma once

#include <cstdint>

#include "daemon/job.h"
#include "daemon/protocol.h"
#include "daemon/tokenizer/tokenizer.h"

namespace gemmad {

struct PromptLimits {
  std::int64_t max_tokens = 1024;
  std::int64_t vocab_size = 0;  // V: ids are 0 .. V - 1
};

/// The job of a request, without an id. Text goes through LTX's encode procedure; given ids are taken as they
/// are and cut at max_tokens. A prompt fails alone with "bad_token" (an id out of range), "empty_prompt" (no
/// ids) or "bad_text" (not UTF-8). `tokenizer` may be null where no prompt is text. Takes O(n log n) in the
/// length of the texts.
Job make_job(const EncodeRequest& request, const Tokenizer* tokenizer, const PromptLimits& limits);

}  // namespace gemmad
