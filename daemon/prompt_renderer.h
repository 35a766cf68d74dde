// Makes of a prompt what the model continues. On a thread of its own: an image takes long to decode.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/enhance_request.h"
#include "daemon/enhancement.h"

namespace gemmad {

/// A prompt as the model takes it: within its chat template, with the image's soft tokens.
struct RenderedPrompt {
  std::vector<std::int32_t> ids;     // [n], 1 <= n, each below the model's vocab_size
  std::optional<PromptImage> image;  // where the options have one
};

/// A prompt that cannot be rendered: its reply carries `code` and what(). Codes are of a small fixed set,
/// "bad_text" and "bad_image" above all: they name a series of the metrics.
class RenderError : public std::runtime_error {
 public:
  RenderError(std::string code, const std::string& message)
      : std::runtime_error(message), code_(std::move(code)) {}
  const std::string& code() const { return code_; }

 private:
  std::string code_;
};

/// Called on the renderer's thread alone. Throws RenderError; any other exception counts as "internal".
using RenderPrompt = std::function<RenderedPrompt(const std::string& prompt, const EnhanceOptions& options)>;

/// Renders one prompt after the other, in the order of begin(). Calls come from one thread. The destructor
/// waits for the prompt at hand. Bounded by its caller, which knows how many it has begun.
class PromptRenderer {
 public:
  struct Rendered {
    JobId id = 0;
    std::variant<RenderedPrompt, JobFailure> result;
  };

  /// `on_rendered` is called on the renderer's thread when take() has more; must not throw. Throws
  /// std::system_error when threads are lacking.
  PromptRenderer(RenderPrompt render, std::function<void()> on_rendered);

  /// Never waits.
  void begin(JobId id, std::string prompt, EnhanceOptions options);
  /// Forgets a prompt that is not at hand yet. One that is comes all the same.
  void drop(JobId id);
  /// What is done since the last time.
  std::vector<Rendered> take();

 private:
  struct Waiting {
    JobId id = 0;
    std::string prompt;
    EnhanceOptions options;
  };

  void serve(const std::stop_token& stop);
  Rendered render(const Waiting& waiting) const;

  RenderPrompt render_;
  std::function<void()> on_rendered_;
  std::mutex mutex_;  // of the two below
  std::deque<Waiting> waiting_;
  std::vector<Rendered> rendered_;
  std::condition_variable_any changed_;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace gemmad
