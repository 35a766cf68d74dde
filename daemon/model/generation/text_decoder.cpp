#include "daemon/model/generation/text_decoder.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace gemmad {

namespace {

constexpr std::size_t kInputs = 4;

/// Rows that keep their keys and values, then look at what is kept.
class CachedAttention final : public RowAttention {
 public:
  CachedAttention(KvCache& cache, const CacheRows& rows, Ops& ops) : cache_(cache), rows_(rows), ops_(ops) {}

  ConstTensorView rope(LayerKind kind) const override { return cache_.rope(kind); }
  void attend(std::int64_t layer, ConstTensorView qkv, const AttentionParams& params,
              TensorView out) override {
    const TensorView cache = cache_.layer(layer);
    ops_.store_kv(qkv, params.heads, rows_, cache, ops_.stream());
    ops_.attention_cached(qkv, rows_, cache, params, out, ops_.stream());
  }

 private:
  KvCache& cache_;
  const CacheRows& rows_;
  Ops& ops_;
};

}  // namespace

TextDecoder::TextDecoder(const TextConfig& config, TextWeights weights, TextWorkspace& workspace,
                         KvCache& cache, Ops& ops)
    : layers_(config, std::move(weights), ops),
      workspace_(workspace),
      cache_(cache),
      ops_(ops),
      max_rows_(ops.padded_rows(std::max(cache.limits().max_chunk_rows, cache.limits().num_slots))),
      host_inputs_(kInputs * static_cast<std::size_t>(max_rows_)),
      inputs_(ops.memory(), host_inputs_.size() * sizeof(std::int32_t)),
      recordings_(ops.make_recordings()) {}

ConstTensorView TextDecoder::decode(std::span<const CachedRow> rows, PartLinks& links) {
  const Activations a = stage(rows);
  const auto all = [&] {
    layers_.fill(a, links);
    layers_.start(a);
    run_layers(a, false, links);
  };
  recordings_->run(a.ids.shape[0], 0, ops_.stream(), std::ref(all));
  const Range layers = weights().layer_range;
  if (layers.end < layers_.config().num_layers) {
    links.send(a.state(layers.end), ops_.stream());
    return {};
  }
  return a.normed;
}

void TextDecoder::prefill(std::span<const CachedRow> rows, const std::optional<ImageRows>& image,
                          PartLinks& links) {
  const Activations a = stage(rows);
  layers_.fill(a, links);
  const Range layers = weights().layer_range;
  if (image && layers.begin == 0) {
    const TensorView x = a.state(0);
    const auto row_bytes = static_cast<std::int64_t>(x.size_bytes()) / x.shape[0];
    const TensorView places{x.as<std::byte>() + image->first_row * row_bytes, x.dtype, image->features.shape};
    ops_.copy(places, image->features, ops_.stream());
  }
  layers_.start(a);
  run_layers(a, true, links);
  if (layers.end < layers_.config().num_layers) links.send(a.state(layers.end), ops_.stream());
}

void TextDecoder::run_layers(const Activations& a, bool is_chunk, PartLinks& links) {
  rows_.is_chunk = is_chunk;
  CachedAttention attention(cache_, rows_, ops_);
  const Range layers = weights().layer_range;
  for (std::int64_t layer = layers.begin; layer < layers.end; ++layer)
    layers_.run(layer, a, links, attention);
}

/// Uploads a pass's rows, and what the device fills them up with: rows of no sequence.
Activations TextDecoder::stage(std::span<const CachedRow> rows) {
  const std::int64_t num_rows = ops_.padded_rows(static_cast<std::int64_t>(rows.size()));
  const auto stride = static_cast<std::size_t>(max_rows_);
  for (std::size_t row = 0; row < static_cast<std::size_t>(num_rows); ++row) {
    const CachedRow here = row < rows.size() ? rows[row] : CachedRow{0, -1, 0, 1};
    host_inputs_.at(row) = here.id;
    host_inputs_.at(stride + row) = here.slot;
    host_inputs_.at(2 * stride + row) = here.position;
    host_inputs_.at(3 * stride + row) = here.end;
  }
  const Shape all{static_cast<std::int64_t>(host_inputs_.size())};
  ops_.upload(inputs_.view(DType::kI32, all), {host_inputs_.data(), DType::kI32, all}, ops_.stream());

  const auto input = [&](std::size_t number) {
    return inputs_.view(DType::kI32, {num_rows}, number * stride * sizeof(std::int32_t));
  };
  Activations a = workspace_.cut(layers_.widths(), num_rows);
  a.ids = input(0);
  a.positions = input(2);
  rows_.slots = input(1);
  rows_.positions = input(2);
  rows_.ends = input(3);
  return a;
}

}  // namespace gemmad
