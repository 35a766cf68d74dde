// Makes of a prompt and an image the chat that the model continues.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "config/daemon_config.h"
#include "config/vision_config.h"
#include "daemon/prompt_renderer.h"
#include "daemon/tokenizer/tokenizer.h"

namespace gemmad {

/// What the model is told before a prompt, unless the client says something else.
struct SystemPrompts {
  std::string text;   // for prompts alone
  std::string image;  // for prompts with an image
};

/// The user's own where the settings name files of them, else the daemon's. Blocks on the disk. Throws
/// ConfigError for a file that cannot be read, is longer than 64 KiB or is not UTF-8.
SystemPrompts load_system_prompts(const DaemonConfig& settings);

/// Whether every request could be answered with the files that the settings name. Throws ConfigError, naming
/// key and file, for one that holds a control token of the tokenizer, or leaves no room in enhance.context.
void check_system_prompts(const SystemPrompts& prompts, const DaemonConfig& settings,
                          const Tokenizer& tokenizer);

/// Renders prompts for a model with `tokenizer`, which must outlive the result, ids below `vocab_size` and,
/// where `vision` is there, eyes. Any number of threads may call it at once. See RenderPrompt; codes:
/// "bad_text", "bad_image", "no_vision", "bad_token".
RenderPrompt make_prompt_chat(const Tokenizer& tokenizer, std::int64_t vocab_size,
                              std::optional<VisionConfig> vision, SystemPrompts system_prompts);

}  // namespace gemmad
