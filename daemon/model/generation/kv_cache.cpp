#include "daemon/model/generation/kv_cache.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "daemon/model/memory_cutter.h"
#include "daemon/model/rope_upload.h"

namespace gemmad {

namespace {

// Positions of a slot come in such blocks: devices read them so.
constexpr std::int64_t kBlock = 64;

Shape layer_shape(const TextConfig& config, std::int64_t layer, const HeadLayout& heads,
                  const KvCacheLimits& limits) {
  const bool slides = config.layer_kinds[static_cast<std::size_t>(layer)] == LayerKind::kSliding;
  const std::int64_t seen = slides ? config.sliding_window + limits.max_chunk_rows - 1 : limits.context;
  const std::int64_t positions = std::min(limits.context, seen);
  return {limits.num_slots, (positions + kBlock - 1) / kBlock * kBlock, 2 * heads.kv_width()};
}

std::vector<TensorView> cut_layers(MemoryCutter& cutter, const TextConfig& config, Range layer_range,
                                   const HeadLayout& heads, DType dtype, const KvCacheLimits& limits) {
  std::vector<TensorView> layers;
  for (std::int64_t layer = layer_range.begin; layer < layer_range.end; ++layer)
    layers.push_back(cutter.place(dtype, layer_shape(config, layer, heads, limits)));
  return layers;
}

}  // namespace

KvCache::KvCache(const TextConfig& config, Range layer_range, const HeadLayout& heads, Ops& ops,
                 const KvCacheLimits& limits)
    : limits_(limits),
      first_layer_(layer_range.begin),
      dtype_(ops.compute_dtype()),
      rope_shape_{limits.context, config.head_dim} {
  if (limits.num_slots < 1 || limits.context < 1 || limits.max_chunk_rows < 1)
    throw std::invalid_argument("a cache needs slots, positions and rows");
  MemoryCutter sizes(nullptr);
  cut_layers(sizes, config, layer_range, heads, dtype_, limits);
  memory_ = Buffer(ops.memory(), sizes.most_bytes());
  MemoryCutter cutter(&memory_);
  layers_ = cut_layers(cutter, config, layer_range, heads, dtype_, limits);
  rope_full_ = upload_rope_table(ops, config.rope_full, rope_shape_);
  rope_sliding_ = upload_rope_table(ops, config.rope_sliding, rope_shape_);
}

TensorView KvCache::layer(std::int64_t layer) const {
  return layers_.at(static_cast<std::size_t>(layer - first_layer_));
}

ConstTensorView KvCache::rope(LayerKind kind) const {
  return (kind == LayerKind::kSliding ? rope_sliding_ : rope_full_).view(dtype_, rope_shape_);
}

}  // namespace gemmad
