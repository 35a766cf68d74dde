#include "daemon/ctl/encode_file/prompt_tensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "daemon/ctl/control_client.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

constexpr std::array<std::uint16_t, 6> kVideo = {1, 2, 3, 4, 5, 6};  // [2, 3]
constexpr std::array<std::uint16_t, 4> kAudio = {7, 8, 9, 10};       // [2, 2]

Reader::Prompt some_prompt() {
  Reader::Prompt prompt;
  prompt.ok = true;
  prompt.num_tokens = 2;
  prompt.padded_length = 5;
  prompt.tensors = {{"features.video", "BF16", {2, 3}, kVideo.data(), sizeof kVideo, 0},
                    {"features.audio", "BF16", {2, 2}, kAudio.data(), sizeof kAudio, 0}};
  return prompt;
}

template <typename Element>
std::vector<Element> elements(const TensorToWrite& tensor) {
  std::vector<Element> found(tensor.size_bytes / sizeof(Element));
  std::memcpy(found.data(), tensor.data, tensor.size_bytes);
  return found;
}

TEST_CASE("the trainer's tensors are features behind rows of zeros, and the mask of tokens") {
  const PromptTensors made = tensors_for_trainer(some_prompt());
  REQUIRE(made.tensors.size() == 3);
  const auto& [video, audio, mask] = std::tie(made.tensors[0], made.tensors[1], made.tensors[2]);
  CHECK(video.name == "video_prompt_embeds");
  CHECK(video.dtype == "BF16");
  CHECK(video.shape == std::vector<std::int64_t>{5, 3});
  CHECK(elements<std::uint16_t>(video) ==
        std::vector<std::uint16_t>{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6});
  CHECK(audio.name == "audio_prompt_embeds");
  CHECK(audio.shape == std::vector<std::int64_t>{5, 2});
  CHECK(elements<std::uint16_t>(audio) == std::vector<std::uint16_t>{0, 0, 0, 0, 0, 0, 7, 8, 9, 10});
  CHECK(mask.name == "prompt_attention_mask");
  CHECK(mask.dtype == "I64");
  CHECK(mask.shape == std::vector<std::int64_t>{5});
  CHECK(elements<std::int64_t>(mask) == std::vector<std::int64_t>{0, 0, 0, 1, 1});
}

TEST_CASE("a prompt of the whole length has no padding") {
  Reader::Prompt prompt = some_prompt();
  prompt.padded_length = 2;
  const PromptTensors made = tensors_for_trainer(prompt);
  CHECK(elements<std::uint16_t>(made.tensors[0]) == std::vector<std::uint16_t>{1, 2, 3, 4, 5, 6});
  CHECK(elements<std::int64_t>(made.tensors[2]) == std::vector<std::int64_t>{1, 1});
}

TEST_CASE("a result that cannot be the trainer's is an error of the daemon") {
  Reader::Prompt lacks_audio = some_prompt();
  lacks_audio.tensors.pop_back();
  CHECK_THROWS_AS(tensors_for_trainer(lacks_audio), ClientError);
  Reader::Prompt too_long = some_prompt();
  too_long.padded_length = 1;
  CHECK_THROWS_AS(tensors_for_trainer(too_long), ClientError);
  Reader::Prompt other_rows = some_prompt();
  other_rows.tensors[0].shape = {3, 2};
  CHECK_THROWS_AS(tensors_for_trainer(other_rows), ClientError);
}

TEST_CASE("tensors keep the daemon's names, with the ids in front") {
  const Reader::Prompt prompt = some_prompt();
  const std::array<std::int32_t, 2> ids = {2, 17};
  const PromptTensors made = tensors_as_they_are(prompt, ids);
  REQUIRE(made.tensors.size() == 3);
  CHECK(made.tensors[0].name == "input_ids");
  CHECK(elements<std::int32_t>(made.tensors[0]) == std::vector<std::int32_t>{2, 17});
  CHECK(made.tensors[1].name == "features.video");
  CHECK(made.tensors[1].data == kVideo.data());
  CHECK(made.tensors[2].name == "features.audio");
}

}  // namespace
}  // namespace gemmad
