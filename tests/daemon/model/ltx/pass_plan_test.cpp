#include "daemon/model/ltx/pass_plan.h"

#include "tests/support/catch.h"

namespace gemmad {
namespace {

using Numbers = std::vector<std::int32_t>;

const std::vector<std::int64_t> kOffsets = {0, 2, 5, 6};

ProcessorConfig config_of(ProcessorVariant variant) {
  ProcessorConfig config;
  config.variant = variant;
  config.video = config.audio = {2, 16, 1};
  return config;
}

PassPlan plan(ProcessorVariant variant, const std::vector<ProcessorUnit>& units, std::int64_t step = 1) {
  return plan_pass(config_of(variant), kOffsets, units, 128,
                   [=](std::int64_t rows) { return (rows + step - 1) / step * step; });
}

Numbers list(const PassPlan& plan, const ListRange& range) {
  const auto begin = plan.lists.begin() + static_cast<std::int64_t>(range.first);
  return {begin, begin + static_cast<std::int64_t>(range.count)};
}

ProcessorUnit video(std::size_t prompt) {
  return {prompt, Modality::kVideo, true, true};
}
ProcessorUnit audio(std::size_t prompt) {
  return {prompt, Modality::kAudio, true, true};
}

}  // namespace

TEST_CASE("A projection takes the rows of its units' prompts, in their order") {
  const PassPlan p = plan(ProcessorVariant::kV2, {video(2), audio(1), video(0)});
  REQUIRE(p.projections.size() == 2);
  CHECK(p.num_tokens == 6);
  CHECK(list(p, p.projections[0].rows) == Numbers{5, 0, 1});
  CHECK(list(p, p.projections[0].bounds) == Numbers{0, 1, 3});
  CHECK(list(p, p.projections[1].rows) == Numbers{2, 3, 4});
  CHECK(p.of(Modality::kVideo).units == std::vector<std::size_t>{0, 2});
  CHECK(p.of(Modality::kVideo).unit_rows[1].first_row == 1);
  CHECK(p.of(Modality::kVideo).unit_rows[1].num_rows == 2);
  CHECK(list(p, p.of(Modality::kVideo).unit_rows[1].bounds) == Numbers{0, 2});
  CHECK_FALSE(p.of(Modality::kVideo).gathered);
  CHECK_FALSE(p.of(Modality::kAudio).gathered);
}

TEST_CASE("V1's projection takes the prompts of both modalities once, and audio finds its rows among them") {
  const PassPlan p = plan(ProcessorVariant::kV1, {video(2), audio(1), audio(2), video(0)});
  REQUIRE(p.projections.size() == 1);
  CHECK(list(p, p.projections[0].rows) == Numbers{5, 0, 1, 2, 3, 4});
  CHECK(list(p, p.projections[0].bounds) == Numbers{0, 1, 3, 6});
  CHECK_FALSE(p.of(Modality::kVideo).gathered);
  CHECK(p.of(Modality::kVideo).num_rows == 3);
  REQUIRE(p.of(Modality::kAudio).gathered);
  CHECK(list(p, *p.of(Modality::kAudio).gathered) == Numbers{3, 4, 5, 0});
}

TEST_CASE("Audio that begins as video does needs no rows of its own") {
  CHECK_FALSE(plan(ProcessorVariant::kV1, {video(2), video(0), audio(2)}).of(Modality::kAudio).gathered);
  CHECK_FALSE(plan(ProcessorVariant::kV1, {audio(2), audio(0)}).of(Modality::kAudio).gathered);
  CHECK(plan(ProcessorVariant::kV1, {video(2), video(0), audio(0)}).of(Modality::kAudio).gathered);
}

TEST_CASE("Rows that only fill up are a sequence of their own") {
  const PassPlan p = plan(ProcessorVariant::kV1, {video(1)}, 8);
  CHECK(p.projections[0].num_rows == 3);
  CHECK(list(p, p.projections[0].rows) == Numbers{2, 3, 4, 2, 2, 2, 2, 2});
  CHECK(list(p, p.projections[0].bounds) == Numbers{0, 3, 8});
  CHECK(p.projections[0].num_sequences == 2);
  CHECK(p.of(Modality::kVideo).num_rows == 3);
  const PassPlan full = plan(ProcessorVariant::kV1, {video(1)}, 3);
  CHECK(list(full, full.projections[0].bounds) == Numbers{0, 3});
}

TEST_CASE("A projection that nobody needs has no rows") {
  const PassPlan p = plan(ProcessorVariant::kV2, {video(0)}, 8);
  CHECK(p.projections[1].num_rows == 0);
  CHECK(p.projections[1].rows.count == 0);
  CHECK(plan(ProcessorVariant::kV1, {}).projections[0].num_rows == 0);
}

TEST_CASE("No plan has more numbers than max_list_numbers says") {
  // One token a prompt, and all that can be wanted, in an order that makes audio look for its rows.
  const std::int64_t num_prompts = GENERATE(1, 2, 5, 64);
  const std::int64_t step = GENERATE(1, 7, 64);
  std::vector<std::int64_t> offsets = {0};
  std::vector<ProcessorUnit> units;
  for (std::int64_t prompt = 0; prompt < num_prompts; ++prompt) {
    offsets.push_back(prompt + 1);
    units.push_back(video(static_cast<std::size_t>(prompt)));
    units.push_back(audio(static_cast<std::size_t>(num_prompts - 1 - prompt)));
  }
  const auto padded = [&](std::int64_t rows) { return (rows + step - 1) / step * step; };
  for (const ProcessorVariant variant : {ProcessorVariant::kV1, ProcessorVariant::kV2}) {
    const PassPlan p = plan_pass(config_of(variant), offsets, units, 128, padded);
    CHECK(static_cast<std::int64_t>(p.lists.size()) <= max_list_numbers(num_prompts, padded(num_prompts)));
  }
}

}  // namespace gemmad
