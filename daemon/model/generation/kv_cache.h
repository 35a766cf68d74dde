// The keys and values of sequences that are being continued, on the device.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/shard_plan.h"
#include "config/model_config.h"
#include "kernels/ops.h"

namespace gemmad {

/// How much is to be kept.
struct KvCacheLimits {
  std::int64_t num_slots = 1;       // sequences at once
  std::int64_t context = 0;         // positions of a sequence: 0 .. context - 1
  std::int64_t max_chunk_rows = 1;  // rows of one sequence in one pass
};

/// Of one part of the model: of its layers, with its heads. A layer that sees all positions keeps all of
/// them; a sliding one keeps what the first row of a chunk sees and the chunk. Owns the memory, and the
/// tables of positions, which start at 0.
class KvCache {
 public:
  /// Throws std::bad_alloc, std::invalid_argument for limits that are not positive.
  KvCache(const TextConfig& config, Range layer_range, const HeadLayout& heads, Ops& ops,
          const KvCacheLimits& limits);

  /// [slots, P, 2 K S], as Ops::store_kv takes it. `layer` is one of the part's.
  TensorView layer(std::int64_t layer) const;
  /// [context, S], for Ops::norm_rope.
  ConstTensorView rope(LayerKind kind) const;
  const KvCacheLimits& limits() const { return limits_; }

  std::uint64_t size_bytes() const {
    return memory_.size_bytes() + rope_full_.size_bytes() + rope_sliding_.size_bytes();
  }

 private:
  KvCacheLimits limits_;
  std::int64_t first_layer_;
  DType dtype_;
  Shape rope_shape_;
  Buffer memory_;
  std::vector<TensorView> layers_;
  Buffer rope_full_;
  Buffer rope_sliding_;
};

}  // namespace gemmad
