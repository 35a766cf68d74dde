#include "daemon/job_layout.h"

#include "tests/support/catch.h"

namespace gemmad {
namespace {

constexpr OutputFacts kFacts{8, 96, DType::kF32};

Job job_of(const std::vector<std::size_t>& tokens, OutputSelection outputs) {
  Job job;
  job.outputs = std::move(outputs);
  for (std::size_t n : tokens) {
    JobPrompt prompt;
    prompt.ids.assign(n, 2);
    job.prompts.push_back(std::move(prompt));
  }
  return job;
}

TEST_CASE("tensors are named, shaped and sized by their prompt") {
  const Job job = job_of({3}, {{0, 8}, true});
  const JobLayout layout = lay_out(job, std::vector<int>{0}, 1, kFacts);
  REQUIRE(layout.prompts[0].size() == 3);
  CHECK(layout.prompts[0][0].name == "hidden_states.0");
  CHECK(layout.prompts[0][1].name == "hidden_states.8");
  CHECK(layout.prompts[0][2].name == "last_hidden_state");
  CHECK(layout.prompts[0][2].hidden_state == 8);
  CHECK(layout.prompts[0][1].shape == Shape{3, 96});
  CHECK(layout.prompts[0][1].size_bytes == 3 * 96 * 4);
}

TEST_CASE("tensors are aligned, in bounds and apart") {
  const Job job = job_of({1, 7, 3, 12}, {{0, 1, 2}, false});
  const JobLayout layout = lay_out(job, std::vector<int>{1, 0, 1, 2}, 3, kFacts);
  std::vector<bool> taken(layout.size_bytes, false);
  for (const auto& prompt : layout.prompts) {
    for (const PlacedTensor& tensor : prompt) {
      CHECK(tensor.offset % 256 == 0);
      REQUIRE(tensor.offset + tensor.size_bytes <= layout.size_bytes);
      for (std::uint64_t byte = tensor.offset; byte < tensor.offset + tensor.size_bytes; ++byte) {
        REQUIRE_FALSE(taken[byte]);
        taken[byte] = true;
      }
    }
  }
}

TEST_CASE("what a rank computes stands together") {
  const Job job = job_of({1, 7, 3, 12}, {{0, 1}, false});
  const std::vector<int> owners{1, 0, 1, 2};
  const JobLayout layout = lay_out(job, owners, 4, kFacts);
  REQUIRE(layout.ranks.size() == 4);
  for (std::size_t p = 0; p < job.prompts.size(); ++p) {
    const OwnedRange& range = layout.ranks[static_cast<std::size_t>(owners[p])];
    for (const PlacedTensor& tensor : layout.prompts[p]) {
      CHECK(tensor.offset >= range.begin);
      CHECK(tensor.offset + tensor.size_bytes <= range.end);
    }
  }
  CHECK(layout.ranks[3].begin == layout.ranks[3].end);
  CHECK(layout.ranks[2].end == layout.size_bytes);
}

TEST_CASE("a prompt that failed takes no space") {
  Job job = job_of({4, 0}, {{0}, false});
  job.prompts[1].error_code = "bad_token";
  const JobLayout layout = lay_out(job, std::vector<int>{0, 0}, 1, kFacts);
  CHECK(layout.prompts[1].empty());
  CHECK(layout.size_bytes == 4 * 96 * 4);
}

TEST_CASE("a job without prompts is empty") {
  const JobLayout layout = lay_out(Job{}, {}, 2, kFacts);
  CHECK(layout.size_bytes == 0);
  CHECK(layout.ranks.size() == 2);
}

}  // namespace
}  // namespace gemmad
