#include "daemon/prompt_renderer.h"

#include <deque>
#include <semaphore>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

/// A renderer whose prompts "a", "b" ... become ids; "hold" waits for the gate.
struct RendererFixture {
  std::counting_semaphore<> begun{0};
  std::counting_semaphore<> gate{0};
  std::counting_semaphore<> done{0};
  PromptRenderer renderer{[this](const std::string& prompt, const EnhanceOptions& options) {
                            begun.release();
                            if (prompt == "hold") gate.acquire();
                            if (prompt == "bad") throw RenderError("bad_text", "no UTF-8");
                            if (prompt == "broken") throw std::runtime_error("out of paper");
                            return RenderedPrompt{{prompt[0], options.cleans ? 1 : 0}, std::nullopt};
                          },
                          [this] { done.release(); }};

  std::deque<PromptRenderer::Rendered> taken;

  PromptRenderer::Rendered next() {
    done.acquire();
    for (PromptRenderer::Rendered& rendered : renderer.take())
      taken.push_back(std::move(rendered));
    REQUIRE_FALSE(taken.empty());
    PromptRenderer::Rendered rendered = std::move(taken.front());
    taken.pop_front();
    return rendered;
  }
};

TEST_CASE_METHOD(RendererFixture, "A prompt is rendered with its options, under its number") {
  EnhanceOptions options;
  options.cleans = false;
  renderer.begin(7, "a", options);
  const auto rendered = next();
  CHECK(rendered.id == 7);
  CHECK(std::get<RenderedPrompt>(rendered.result).ids == std::vector<std::int32_t>{'a', 0});
}

TEST_CASE_METHOD(RendererFixture, "Prompts are rendered one after the other, in their order") {
  renderer.begin(1, "hold", {});
  begun.acquire();
  renderer.begin(2, "a", {});
  renderer.begin(3, "b", {});
  CHECK(renderer.take().empty());
  gate.release();
  for (int i = 0; i < 3; ++i)
    done.acquire();
  const auto rendered = renderer.take();
  REQUIRE(rendered.size() == 3);
  CHECK(rendered[0].id == 1);
  CHECK(rendered[1].id == 2);
  CHECK(rendered[2].id == 3);
}

TEST_CASE_METHOD(RendererFixture, "A prompt that is dropped before its turn never comes") {
  renderer.begin(1, "hold", {});
  begun.acquire();
  renderer.begin(2, "a", {});
  renderer.begin(3, "b", {});
  renderer.drop(2);
  renderer.drop(1);  // at hand already
  renderer.drop(9);
  gate.release();
  CHECK(next().id == 1);
  CHECK(next().id == 3);
}

TEST_CASE_METHOD(RendererFixture,
                 "A prompt that cannot be rendered tells why, and the next one is rendered") {
  renderer.begin(1, "bad", {});
  const auto bad = std::get<JobFailure>(next().result);
  CHECK(bad.code == "bad_text");
  CHECK(bad.message == "no UTF-8");
  renderer.begin(2, "broken", {});
  const auto broken = std::get<JobFailure>(next().result);
  CHECK(broken.code == "internal");
  CHECK(broken.message == "the prompt could not be made ready: out of paper");
  renderer.begin(3, "a", {});
  CHECK(std::holds_alternative<RenderedPrompt>(next().result));
}

TEST_CASE("A renderer ends with prompts that wait") {
  std::counting_semaphore<> begun{0};
  std::counting_semaphore<> gate{0};
  int rendered = 0;
  {
    PromptRenderer renderer(
        [&](const std::string&, const EnhanceOptions&) {
          ++rendered;
          begun.release();
          gate.acquire();
          return RenderedPrompt{{1}, std::nullopt};
        },
        [] {});
    renderer.begin(1, "a", {});
    begun.acquire();
    renderer.begin(2, "b", {});
    gate.release();
    // Either of the two: the second one may begin before the destructor asks to stop.
    gate.release();
  }
  CHECK(rendered >= 1);
}

}  // namespace
}  // namespace gemmad
