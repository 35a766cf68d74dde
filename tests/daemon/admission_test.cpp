#include "daemon/admission.h"

#include <numeric>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer tiny = Tokenizer::load(GEMMAD_TEST_DATA "/models/gemma3-tiny/tokenizer.json");
  return tiny;
}

constexpr PromptLimits kLimits{1024, 512};

JobPrompt admit(PromptInput input) {
  EncodeRequest request;
  request.prompts.push_back(std::move(input));
  return make_job(request, &tokenizer(), kLimits).prompts.at(0);
}

std::vector<std::int64_t> ids_of(std::size_t n) {
  return std::vector<std::int64_t>(n, 7);
}

TEST_CASE("empty and blank prompts are BOS alone") {
  for (const char* text : {"", "   ", "\n\t \r"}) {
    const JobPrompt prompt = admit(std::string(text));
    CHECK(prompt.ok());
    CHECK(prompt.ids == std::vector<std::int32_t>{2});
    CHECK_FALSE(prompt.truncated);
  }
}

TEST_CASE("given ids are taken as they are, up to the limit") {
  for (std::size_t n : {std::size_t{1}, std::size_t{1023}, std::size_t{1024}}) {
    const JobPrompt prompt = admit(ids_of(n));
    CHECK(prompt.ids.size() == n);
    CHECK_FALSE(prompt.truncated);
  }
}

TEST_CASE("given ids beyond the limit are cut and said to be") {
  for (std::size_t n : {std::size_t{1025}, std::size_t{5000}}) {
    const JobPrompt prompt = admit(ids_of(n));
    CHECK(prompt.ids.size() == 1024);
    CHECK(prompt.truncated);
  }
}

TEST_CASE("a long text is cut and said to be") {
  std::string text;
  for (int i = 0; i < 5000; ++i)
    text += "x ";
  const JobPrompt prompt = admit(text);
  CHECK(prompt.ids.size() == 1024);
  CHECK(prompt.ids.front() == 2);
  CHECK(prompt.truncated);
}

TEST_CASE("ids out of range fail their prompt with place, value and limit") {
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{512}, std::int64_t{1} << 40}) {
    const JobPrompt prompt = admit(std::vector<std::int64_t>{2, bad});
    CHECK(prompt.error_code == "bad_token");
    CHECK(prompt.error_message.find("input_ids[1] is " + std::to_string(bad)) != std::string::npos);
    CHECK(prompt.error_message.find("0 to 511") != std::string::npos);
    CHECK(prompt.ids.empty());
  }
}

TEST_CASE("an id out of range behind the cut fails too") {
  std::vector<std::int64_t> ids = ids_of(2000);
  ids.back() = 100'000;
  CHECK(admit(ids).error_code == "bad_token");
}

TEST_CASE("no ids at all fail") {
  CHECK(admit(std::vector<std::int64_t>{}).error_code == "empty_prompt");
}

TEST_CASE("text that is not UTF-8 fails its prompt") {
  CHECK(admit(std::string("a\xff")).error_code == "bad_text");
}

TEST_CASE("a prompt that fails leaves its neighbours alone") {
  EncodeRequest request;
  request.prompts = {PromptInput("a"), PromptInput(std::vector<std::int64_t>{-1}), PromptInput("b")};
  const Job job = make_job(request, &tokenizer(), kLimits);
  CHECK(job.prompts[0].ok());
  CHECK_FALSE(job.prompts[1].ok());
  CHECK(job.prompts[2].ok());
}

TEST_CASE("a job carries the request's name, outputs, preference and readers") {
  EncodeRequest request;
  request.prefer = Preference::kDeal;
  request.readers = 4;
  request.name = "clip";
  request.outputs.hidden_states = {0, 8};
  request.outputs.last_hidden_state = true;
  request.outputs.embeddings = true;
  const Job job = make_job(request, &tokenizer(), kLimits);
  CHECK(job.name == "clip");
  CHECK(job.prefer == Preference::kDeal);
  CHECK(job.readers == 4);
  CHECK(job.outputs.hidden_states == std::vector<std::int64_t>{0, 8});
  CHECK(job.outputs.last_hidden_state);
  CHECK(job.outputs.embeddings);
}

}  // namespace
}  // namespace gemmad
