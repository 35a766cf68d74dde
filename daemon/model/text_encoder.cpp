#include "daemon/model/text_encoder.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace gemmad {

namespace {

/// Prompts that see themselves alone.
class PackedAttention final : public RowAttention {
 public:
  PackedAttention(const TextWorkspace& workspace, const Activations& a, Ops& ops)
      : workspace_(workspace), a_(a), ops_(ops) {}

  ConstTensorView rope(LayerKind kind) const override { return workspace_.rope(kind); }
  void attend(std::int64_t, ConstTensorView qkv, const AttentionParams& params, TensorView out) override {
    ops_.attention(qkv, {a_.begins, {}}, params, out, ops_.stream());
  }

 private:
  const TextWorkspace& workspace_;
  const Activations& a_;
  Ops& ops_;
};

}  // namespace

TextEncoder::TextEncoder(const TextConfig& config, TextWeights weights, TextWorkspace& workspace, Ops& ops)
    : layers_(config, std::move(weights), ops),
      workspace_(workspace),
      ops_(ops),
      recordings_(ops.make_recordings()) {}

void TextEncoder::forward(const PackedPrompts& prompts, PartLinks& links, HiddenStateSink& sink) {
  check(prompts);
  const auto num_tokens = static_cast<std::int64_t>(prompts.ids.size());
  const std::int64_t num_rows = ops_.padded_rows(num_tokens);
  const Activations a = workspace_.cut(layers_.widths(), num_rows);
  stage_inputs(prompts, num_rows);
  if (ops_.records_work() && workspace_.keeps_states(num_rows)) {
    run_in_one(a, links, sink, num_tokens);
  } else {
    run_by_layers(a, links, sink, num_tokens);
  }
  const Range layers = weights().layer_range;
  if (layers.end < config().num_layers) links.send(a.state(layers.end), ops_.stream());
}

/// Recorded as a whole: no pause between layers. All states stay where they are, and marks tell when each one
/// is there.
void TextEncoder::run_in_one(const Activations& a, PartLinks& links, HiddenStateSink& sink,
                             std::int64_t num_tokens) {
  const Stream stream = ops_.stream();
  const Range layers = weights().layer_range;
  const auto all = [&] {
    start(a, links);
    ops_.set_mark(static_cast<std::size_t>(layers.begin), stream);
    for (std::int64_t layer = layers.begin; layer < layers.end; ++layer) {
      run_layer(layer, a, links);
      ops_.set_mark(static_cast<std::size_t>(layer + 1), stream);
    }
  };
  recordings_->run(a.ids.shape[0], 0, stream, std::ref(all));
  for (std::int64_t index = first_state(); index <= layers.end; ++index) {
    sink.hidden_state(index, state_of_tokens(index, a, num_tokens), {stream, static_cast<std::size_t>(index)},
                      true);
  }
}

void TextEncoder::run_by_layers(const Activations& a, PartLinks& links, HiddenStateSink& sink,
                                std::int64_t num_tokens) {
  const Stream stream = ops_.stream();
  const Range layers = weights().layer_range;
  const auto record = [&](std::int64_t step, const auto& body) {
    recordings_->run(a.ids.shape[0], step, stream, std::ref(body));
  };
  record(0, [&] { start(a, links); });
  if (layers.begin == 0) sink.hidden_state(0, state_of_tokens(0, a, num_tokens), {stream}, false);
  for (std::int64_t layer = layers.begin; layer < layers.end; ++layer) {
    record(layer + 1, [&] { run_layer(layer, a, links); });
    sink.hidden_state(layer + 1, state_of_tokens(layer + 1, a, num_tokens), {stream}, false);
  }
}

ConstTensorView TextEncoder::state_of_tokens(std::int64_t index, const Activations& a,
                                             std::int64_t num_tokens) const {
  const TensorView state = index == config().num_layers ? a.normed : a.state(index);
  return {state.data, state.dtype, {num_tokens, config().hidden_size}};
}

void TextEncoder::start(const Activations& a, PartLinks& links) {
  layers_.fill(a, links);
  layers_.start(a);
}

void TextEncoder::run_layer(std::int64_t layer, const Activations& a, PartLinks& links) {
  PackedAttention attention(workspace_, a, ops_);
  layers_.run(layer, a, links, attention);
}

void TextEncoder::stage_inputs(const PackedPrompts& prompts, std::int64_t num_rows) {
  const auto max_rows = static_cast<std::size_t>(workspace_.max_rows());
  const std::span<std::int32_t> inputs = workspace_.host_inputs();
  const std::span<std::int32_t> ids = inputs.first(max_rows);
  const std::span<std::int32_t> positions = inputs.subspan(max_rows, max_rows);
  const std::span<std::int32_t> begins = inputs.last(max_rows);
  std::copy(prompts.ids.begin(), prompts.ids.end(), ids.begin());
  for (std::size_t b = 0; b + 1 < prompts.offsets.size(); ++b) {
    // Positions of the prompt padded on the left: its last token always has the last one.
    for (std::int64_t row = prompts.offsets[b]; row < prompts.offsets[b + 1]; ++row) {
      positions[static_cast<std::size_t>(row)] =
          static_cast<std::int32_t>(workspace_.padded_length() - prompts.offsets[b + 1] + row);
      begins[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(prompts.offsets[b]);
    }
  }
  // Rows that only fill up are sequences of their own.
  for (auto row = prompts.ids.size(); row < static_cast<std::size_t>(num_rows); ++row) {
    ids[row] = 0;
    positions[row] = 0;
    begins[row] = static_cast<std::int32_t>(row);
  }
  const TensorView to = workspace_.inputs();
  ops_.upload(to, {inputs.data(), DType::kI32, to.shape}, ops_.stream());
}

void TextEncoder::tune(std::int64_t max_rows) {
  if (weights().layers.empty()) return;
  using Product = const ConstMatrixView& (*)(const LayerWeights&);
  const auto all = [&](Product product) {
    std::vector<ConstMatrixView> matrices;
    for (const LayerWeights& layer : weights().layers)
      matrices.push_back(product(layer));
    return matrices;
  };
  for (std::int64_t rows = ops_.padded_rows(1);; rows = ops_.padded_rows(rows + 1)) {
    const Activations a = workspace_.cut(layers_.widths(), rows);
    std::int64_t column = 0;
    for (std::size_t i = 0; i < weights().layers.front().qkv.size(); ++i) {
      std::vector<ConstMatrixView> parts;
      for (const LayerWeights& layer : weights().layers)
        parts.push_back(layer.qkv[i]);
      const std::int64_t end = column + parts.front().rows;
      ops_.tune_gemm(a.normed, parts, MatrixView(a.qkv).column_range(column, end), 0);
      column = end;
    }
    ops_.tune_gemm(a.mixed, all([](const LayerWeights& w) -> auto& { return w.o; }), a.branch, 0);
    ops_.tune_gemm(a.normed, all([](const LayerWeights& w) -> auto& { return w.gate_up; }), a.gate_up,
                   weights().ffn_block);
    ops_.tune_gemm(a.gated, all([](const LayerWeights& w) -> auto& { return w.down; }), a.branch, 0);
    if (rows >= max_rows) break;
  }
}

void TextEncoder::check(const PackedPrompts& prompts) const {
  const auto num_tokens = static_cast<std::int64_t>(prompts.ids.size());
  const auto& offsets = prompts.offsets;
  if (offsets.size() < 2 || offsets.front() != 0 || offsets.back() != num_tokens) {
    throw BatchError("a batch needs a prompt, and offsets from 0 to its " + std::to_string(num_tokens) +
                     " tokens");
  }
  if (num_tokens > max_batch_tokens()) {
    throw BatchError("the batch has " + std::to_string(num_tokens) + " tokens, the limit is " +
                     std::to_string(max_batch_tokens()));
  }
  for (std::size_t b = 0; b + 1 < offsets.size(); ++b) {
    // Compared before subtracted: hostile offsets must not overflow.
    if (offsets[b + 1] <= offsets[b] || offsets[b + 1] > num_tokens) {
      throw BatchError("prompt " + std::to_string(b) + " is empty or its offsets do not rise");
    }
    if (offsets[b + 1] - offsets[b] > workspace_.padded_length()) {
      throw BatchError("prompt " + std::to_string(b) + " has " + std::to_string(offsets[b + 1] - offsets[b]) +
                       " tokens, the limit is " + std::to_string(workspace_.padded_length()));
    }
  }
  for (std::size_t i = 0; i < prompts.ids.size(); ++i) {
    if (prompts.ids[i] < 0 || prompts.ids[i] >= config().vocab_size) {
      throw BatchError("token " + std::to_string(i) + " of the batch has id " +
                       std::to_string(prompts.ids[i]) + ", must be in [0, " +
                       std::to_string(config().vocab_size) + ")");
    }
  }
}

}  // namespace gemmad
