// The tensors of a prompt as its file has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/reader/gemmad_reader.h"
#include "daemon/ctl/safetensors_writer.h"

namespace gemmad {

/// Some of the tensors are in `buffers`, the others where the prompt has them. Moving keeps them valid.
struct PromptTensors {
  std::vector<TensorToWrite> tensors;
  std::vector<std::vector<std::byte>> buffers;
};

/// input_ids, and the tensors under their own names. `ids` and `prompt` must outlive the result.
PromptTensors tensors_as_they_are(const Reader::Prompt& prompt, std::span<const std::int32_t> ids);

/// What LTX-2's trainer reads: video_prompt_embeds and audio_prompt_embeds [S, C], S being the padded length,
/// which are the features behind rows of zeros; prompt_attention_mask [S], I64, 0 for those rows and 1 for
/// tokens. In the trainer's own files such a row may hold anything: its mask hides it. Throws ClientError for
/// a result without features.
PromptTensors tensors_for_trainer(const Reader::Prompt& prompt);

}  // namespace gemmad
