#include "daemon/admission.h"

#include <algorithm>

#include "daemon/tokenizer/prompt_encoder.h"

namespace gemmad {

namespace {

JobPrompt failed_prompt(std::string code, std::string message) {
  JobPrompt prompt;
  prompt.error_code = std::move(code);
  prompt.error_message = std::move(message);
  return prompt;
}

JobPrompt prompt_of_text(const std::string& text, const Tokenizer& tokenizer, const PromptLimits& limits) {
  try {
    EncodedPrompt encoded = encode_prompt(tokenizer, text, limits.max_tokens);
    JobPrompt prompt;
    prompt.ids = std::move(encoded.ids);
    prompt.truncated = encoded.truncated;
    const auto beyond =
        std::find_if(prompt.ids.begin(), prompt.ids.end(), [&](auto id) { return id >= limits.vocab_size; });
    if (beyond == prompt.ids.end()) return prompt;
    return failed_prompt("bad_token", "the tokenizer gives id " + std::to_string(*beyond) +
                                          ", the model has ids 0 to " +
                                          std::to_string(limits.vocab_size - 1));
  } catch (const TokenizerError& error) {
    return failed_prompt("bad_text", error.what());
  }
}

JobPrompt prompt_of_ids(const std::vector<std::int64_t>& ids, const PromptLimits& limits) {
  if (ids.empty()) return failed_prompt("empty_prompt", "input_ids is empty; a prompt has at least one id");
  JobPrompt prompt;
  prompt.truncated = static_cast<std::int64_t>(ids.size()) > limits.max_tokens;
  // Ids beyond the cut are checked too: a client that sends nonsense should hear of it.
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= limits.vocab_size) {
      return failed_prompt("bad_token", "input_ids[" + std::to_string(i) + "] is " + std::to_string(ids[i]) +
                                            "; ids are 0 to " + std::to_string(limits.vocab_size - 1));
    }
    if (static_cast<std::int64_t>(i) < limits.max_tokens)
      prompt.ids.push_back(static_cast<std::int32_t>(ids[i]));
  }
  return prompt;
}

}  // namespace

Job make_job(const EncodeRequest& request, const Tokenizer* tokenizer, const PromptLimits& limits) {
  Job job;
  job.name = request.name;
  job.prefer = request.prefer;
  job.readers = request.readers;
  job.outputs = request.outputs;
  for (const PromptInput& input : request.prompts) {
    const auto* text = std::get_if<std::string>(&input);
    job.prompts.push_back(text != nullptr
                              ? prompt_of_text(*text, *tokenizer, limits)
                              : prompt_of_ids(std::get<std::vector<std::int64_t>>(input), limits));
  }
  return job;
}

}  // namespace gemmad
