#include "daemon/prompt_renderer.h"

namespace gemmad {

PromptRenderer::PromptRenderer(RenderPrompt render, std::function<void()> on_rendered)
    : render_(std::move(render)),
      on_rendered_(std::move(on_rendered)),
      thread_([this](const std::stop_token& stop) { serve(stop); }) {}

void PromptRenderer::begin(JobId id, std::string prompt, EnhanceOptions options) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({id, std::move(prompt), std::move(options)});
  }
  changed_.notify_one();
}

void PromptRenderer::drop(JobId id) {
  const std::lock_guard lock(mutex_);
  std::erase_if(waiting_, [&](const Waiting& waiting) { return waiting.id == id; });
}

std::vector<PromptRenderer::Rendered> PromptRenderer::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(rendered_, {});
}

void PromptRenderer::serve(const std::stop_token& stop) {
  for (;;) {
    Waiting waiting;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, stop, [&] { return !waiting_.empty(); });
      if (stop.stop_requested()) return;
      waiting = std::move(waiting_.front());
      waiting_.pop_front();
    }
    Rendered rendered = render(waiting);
    {
      const std::lock_guard lock(mutex_);
      rendered_.push_back(std::move(rendered));
    }
    on_rendered_();
  }
}

PromptRenderer::Rendered PromptRenderer::render(const Waiting& waiting) const {
  try {
    return {waiting.id, render_(waiting.prompt, waiting.options)};
  } catch (const RenderError& error) {
    return {waiting.id, JobFailure{error.code(), error.what()}};
  } catch (const std::exception& error) {
    return {waiting.id,
            JobFailure{"internal", std::string("the prompt could not be made ready: ") + error.what()}};
  }
}

}  // namespace gemmad
