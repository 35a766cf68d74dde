// The options of gemmactl enhance, and of an encode that enhances its first prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace gemmad {

struct EnhanceCtlOptions {
  std::optional<std::string> prompt;  // "-": standard input
  std::string image_file;
  std::string system_prompt_file;
  std::optional<std::int64_t> max_new_tokens;
  std::optional<std::uint64_t> seed;
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  std::optional<std::int64_t> no_repeat_ngram;
  bool greedy = false;
  bool raw = false;
  bool no_guard = false;
  bool streams = false;
};

bool is_enhance_option(const std::string& name);
/// Those without a value.
bool is_enhance_flag(const std::string& name);

/// `name` must be an enhance option with a value. Throws CtlUsageError for a value that it cannot have.
void set_enhance_option(EnhanceCtlOptions& options, const std::string& name, const std::string& value);
/// `name` must be an enhance flag.
void set_enhance_flag(EnhanceCtlOptions& options, const std::string& name);

std::string enhance_help_text();

}  // namespace gemmad
