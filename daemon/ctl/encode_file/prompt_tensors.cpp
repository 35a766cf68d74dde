#include "daemon/ctl/encode_file/prompt_tensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/ctl/control_client.h"

namespace gemmad {

namespace {

void add(PromptTensors& to, const char* name, const char* dtype, std::vector<std::int64_t> shape,
         std::vector<std::byte> bytes) {
  to.buffers.push_back(std::move(bytes));
  const std::vector<std::byte>& kept = to.buffers.back();
  to.tensors.push_back({name, dtype, std::move(shape), kept.data(), kept.size()});
}

void add_features(PromptTensors& to, const char* name, const Reader::Prompt& prompt, const char* of) {
  const Reader::Tensor* const features = prompt.find(of);
  const std::int64_t num_rows = prompt.padded_length;
  if (features == nullptr || features->shape.size() != 2 || features->shape[0] != prompt.num_tokens ||
      prompt.num_tokens < 1 || prompt.num_tokens > num_rows) {
    throw ClientError(std::string("the daemon's result has no ") + of + " as the trainer's format needs");
  }
  const std::size_t row_bytes = features->size_bytes / static_cast<std::size_t>(prompt.num_tokens);
  std::vector<std::byte> padded(row_bytes * static_cast<std::size_t>(num_rows));
  std::memcpy(padded.data() + padded.size() - features->size_bytes, features->data, features->size_bytes);
  add(to, name, features->dtype.c_str(), {num_rows, features->shape[1]}, std::move(padded));
}

void add_mask(PromptTensors& to, const Reader::Prompt& prompt) {
  std::vector<std::int64_t> mask(static_cast<std::size_t>(prompt.padded_length), 0);
  std::fill(mask.end() - prompt.num_tokens, mask.end(), 1);
  std::vector<std::byte> bytes(mask.size() * sizeof mask[0]);
  std::memcpy(bytes.data(), mask.data(), bytes.size());
  add(to, "prompt_attention_mask", "I64", {prompt.padded_length}, std::move(bytes));
}

}  // namespace

PromptTensors tensors_as_they_are(const Reader::Prompt& prompt, std::span<const std::int32_t> ids) {
  PromptTensors result;
  result.tensors.push_back(
      {"input_ids", "I32", {static_cast<std::int64_t>(ids.size())}, ids.data(), ids.size_bytes()});
  for (const Reader::Tensor& tensor : prompt.tensors)
    result.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.data, tensor.size_bytes});
  return result;
}

PromptTensors tensors_for_trainer(const Reader::Prompt& prompt) {
  PromptTensors result;
  add_features(result, "video_prompt_embeds", prompt, "features.video");
  add_features(result, "audio_prompt_embeds", prompt, "features.audio");
  add_mask(result, prompt);
  return result;
}

}  // namespace gemmad
