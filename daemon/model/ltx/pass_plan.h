// Which rows an embeddings processor's pass takes, and in which order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "config/processor_config.h"

namespace gemmad {

/// One modality of one prompt of a pass. Something of it is wanted.
struct ProcessorUnit {
  std::size_t prompt = 0;
  Modality modality = Modality::kVideo;
  bool wants_features = false;
  bool wants_embeddings = false;

  bool operator==(const ProcessorUnit&) const = default;
};

/// Some of the numbers in PassPlan::lists.
struct ListRange {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// The rows of a projection: of the prompts that it serves, one prompt after another.
struct ProjectionPlan {
  std::int64_t num_rows = 0;       // M
  std::int64_t num_sequences = 0;  // prompts, and the rows that only fill up as another
  ListRange rows;                  // of the hidden states; M, and what the device fills them up with
  ListRange bounds;                // [num_sequences + 1], of the prompts in `rows`
};

/// Where a unit's rows are in the features of its modality.
struct UnitRows {
  std::size_t unit = 0;  // index in the pass
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  bool wants_embeddings = false;
  ListRange bounds;  // 0, num_rows
};

struct ModalityPlan {
  std::int64_t num_rows = 0;
  bool wants_features = false;
  std::vector<std::size_t> units;  // indices in the pass
  std::vector<UnitRows> unit_rows;
  /// Rows of the projection's features, where not simply its first num_rows are this modality's.
  std::optional<ListRange> gathered;
};

struct PassPlan {
  std::int64_t num_tokens = 0;              // N
  std::vector<ProjectionPlan> projections;  // V1: one; V2: video, audio
  std::array<ModalityPlan, 2> modalities;
  std::vector<std::int32_t> lists;  // for the device, all in one

  const ModalityPlan& of(Modality modality) const { return modalities[static_cast<std::size_t>(modality)]; }
};

/// The most numbers that a plan's lists hold.
std::int64_t max_list_numbers(std::int64_t max_batch_tokens, std::int64_t max_padded_rows);

/// Plans a pass over prompts that `offsets` cut a batch into. Of V1's one projection, the rows are those of
/// the video units, then of prompts that only audio units want. `padded_rows`: Device::padded_rows. Pure.
/// Throws std::invalid_argument, which names the prompt or unit, for offsets that do not rise from 0, a
/// wanted prompt of more than `sequence_length` tokens, and a unit that is of no prompt, wants nothing or
/// comes twice.
PassPlan plan_pass(const ProcessorConfig& config, std::span<const std::int64_t> offsets,
                   std::span<const ProcessorUnit> units, std::int64_t sequence_length,
                   const std::function<std::int64_t(std::int64_t)>& padded_rows);

}  // namespace gemmad
