#include "daemon/model/ltx/embeddings_processor.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

namespace gemmad {
namespace {

constexpr float kEps = 1e-6f;  // of every norm here

/// Rows [first, first + count) of `x` [.., columns].
template <typename View>
View rows_of(const View& x, std::int64_t first, std::int64_t count) {
  const std::int64_t columns = x.shape[1];
  const auto offset = static_cast<std::size_t>(first * columns) * size_bytes(x.dtype);
  return {x.template as<std::byte>() + offset, x.dtype, {count, columns}};
}

HeadLayout head_layout(const ConnectorConfig& connector) {
  return {connector.num_heads, connector.num_heads, connector.head_dim};
}

RopePairs rope_pairs(RopeLayout layout) {
  return layout == RopeLayout::kSplit ? RopePairs::kHalves : RopePairs::kNeighbours;
}

}  // namespace

EmbeddingsProcessor::EmbeddingsProcessor(const ProcessorConfig& config, const StateSizes& states,
                                         ProcessorWeights weights, ProcessorWorkspace& workspace, Ops& ops)
    : config_(config),
      states_(states),
      weights_(std::move(weights)),
      workspace_(workspace),
      ops_(ops),
      recordings_(ops.make_recordings()) {}

void EmbeddingsProcessor::begin(std::span<const std::int64_t> offsets, std::span<const ProcessorUnit> units,
                                bool continues) {
  if (!offsets.empty() && offsets.back() > limits().max_batch_tokens) {
    throw std::invalid_argument("a pass has " + std::to_string(offsets.back()) + " tokens, the limit is " +
                                std::to_string(limits().max_batch_tokens));
  }
  plan_ = plan_pass(config_, offsets, units, limits().sequence_length,
                    [this](std::int64_t rows) { return ops_.padded_rows(rows); });
  has_sums_ = continues;
  if (plan_.lists.empty()) return;
  const TensorView to = workspace_.list({0, plan_.lists.size()});
  ops_.upload(to, {plan_.lists.data(), DType::kI32, to.shape}, ops_.stream());
}

void EmbeddingsProcessor::add_state(std::int64_t index, ConstTensorView x) {
  const Range& held = weights_.share.states;
  if (!held.contains(index)) {
    throw std::out_of_range("hidden state " + std::to_string(index) + " of a processor that holds [" +
                            std::to_string(held.begin) + ", " + std::to_string(held.end) + ")");
  }
  const Shape expected{plan_.num_tokens, states_.hidden_size};
  if (!(x.shape == expected)) {
    throw std::invalid_argument("hidden state " + std::to_string(index) + " is " + x.shape.text() +
                                ", must be " + expected.text());
  }
  for (std::size_t projection = 0; projection < plan_.projections.size(); ++projection)
    project(projection, index - held.begin, x);
  has_sums_ = true;
}

void EmbeddingsProcessor::project(std::size_t projection, std::int64_t state, ConstTensorView x) {
  const ProjectionPlan& plan = plan_.projections[projection];
  if (plan.num_rows == 0) return;
  const Stream stream = ops_.stream();
  const auto num_rows = static_cast<std::int64_t>(plan.rows.count);
  const TensorView rows = workspace_.list(plan.rows);
  const TensorView normed = workspace_.normed_states(num_rows);
  const TensorView sums = workspace_.sums(projection, num_rows);
  if (config_.variant == ProcessorVariant::kV1) {
    ops_.range_rows(x, rows, workspace_.list(plan.bounds), kEps, workspace_.range_scratch(plan.num_sequences),
                    normed, stream);
  } else {
    const auto width = static_cast<double>(config_.projection_width(projection));
    const double factor = std::sqrt(width / static_cast<double>(states_.hidden_size));
    ops_.rms_rows(x, rows, static_cast<float>(factor), kEps, normed, stream);
  }
  const ConstTensorView weight = weights_.projections[projection].states[static_cast<std::size_t>(state)];
  ops_.gemm_sums(normed, weight, has_sums_, sums, stream);
}

std::vector<TensorView> EmbeddingsProcessor::sums() const {
  std::vector<TensorView> all;
  for (std::size_t projection = 0; projection < plan_.projections.size(); ++projection)
    all.push_back(workspace_.sums(projection, plan_.projections[projection].num_rows));
  return all;
}

void EmbeddingsProcessor::finish(ProcessorSink& sink) {
  if (!weights_.share.has_connectors || !has_sums_)
    throw std::logic_error("a processor's pass ends where the connectors are, after the hidden states");
  make_features();
  for (const Modality modality : kModalities) {
    const ModalityPlan& plan = plan_.of(modality);
    if (plan.wants_features) sink.features(modality, plan.units, features_of(modality), {ops_.stream()});
  }
  for (const Modality modality : kModalities)
    run_connector(modality, sink);
}

/// A projection's features lie where those of its first modality do.
void EmbeddingsProcessor::make_features() {
  for (std::size_t projection = 0; projection < plan_.projections.size(); ++projection) {
    const std::int64_t num_rows = plan_.projections[projection].num_rows;
    if (num_rows == 0) continue;
    ops_.add_bias(workspace_.sums(projection, num_rows), weights_.projections[projection].bias,
                  workspace_.features(kModalities[projection], num_rows), ops_.stream());
  }
  for (const Modality modality : kModalities) {
    const ModalityPlan& plan = plan_.of(modality);
    if (!plan.gathered) continue;
    const std::int64_t num_rows = plan_.projections.front().num_rows;
    ops_.embed(workspace_.list(*plan.gathered), workspace_.features(Modality::kVideo, num_rows), 1,
               workspace_.features(modality, plan.num_rows), ops_.stream());
  }
}

ConstTensorView EmbeddingsProcessor::features_of(Modality modality) const {
  const ModalityPlan& plan = plan_.of(modality);
  const Modality holder = plan.gathered ? modality : kModalities[config_.projection_of(modality)];
  return workspace_.features(holder, plan.num_rows);
}

void EmbeddingsProcessor::run_connector(Modality modality, ProcessorSink& sink) {
  std::vector<UnitRows> wanted;
  for (const UnitRows& unit : plan_.of(modality).unit_rows) {
    if (unit.wants_embeddings) wanted.push_back(unit);
  }
  const auto most = static_cast<std::size_t>(limits().max_units_at_once);
  for (std::size_t first = 0; first < wanted.size(); first += most) {
    const auto turn = std::span(wanted).subspan(first, std::min(most, wanted.size() - first));
    const auto num_units = static_cast<std::int64_t>(turn.size());
    fill(modality, turn);
    const auto blocks = [&] { run_blocks(modality, num_units); };
    recordings_->run(num_units, static_cast<std::int64_t>(modality), ops_.stream(), std::ref(blocks));

    const TensorView out = workspace_.embeddings(modality, num_units, next_place_);
    next_place_ = 1 - next_place_;
    ops_.rms_norm(workspace_.connector_places(modality, num_units).h, {}, kEps, out, ops_.stream());
    std::vector<std::size_t> units;
    for (const UnitRows& unit : turn)
      units.push_back(unit.unit);
    sink.embeddings(modality, units, out, {ops_.stream()});
  }
}

/// One by one: the features of those that want embeddings need not follow one another.
void EmbeddingsProcessor::fill(Modality modality, std::span<const UnitRows> turn) {
  const ConstTensorView features = features_of(modality);
  const std::int64_t length = limits().sequence_length;
  const TensorView h = workspace_.connector_places(modality, static_cast<std::int64_t>(turn.size())).h;
  for (std::size_t i = 0; i < turn.size(); ++i) {
    ops_.fill_registers(rows_of(features, turn[i].first_row, turn[i].num_rows),
                        workspace_.list(turn[i].bounds), weights_.connector(modality).registers,
                        rows_of(h, static_cast<std::int64_t>(i) * length, length), ops_.stream());
  }
}

void EmbeddingsProcessor::run_blocks(Modality modality, std::int64_t num_units) {
  const Stream stream = ops_.stream();
  const ConnectorPlaces places = workspace_.connector_places(modality, num_units);
  for (const ConnectorBlock& block : weights_.connector(modality).blocks) {
    ops_.rms_norm(places.h, {}, kEps, places.normed, stream);
    attend(block, places, modality, num_units);
    ops_.linear({places.mixed, block.out, block.out_bias, Activation::kNone, places.h, places.h}, stream);

    ops_.rms_norm(places.h, {}, kEps, places.normed, stream);
    ops_.linear({places.normed, block.up, block.up_bias, Activation::kGelu, {}, places.fed}, stream);
    ops_.linear({places.fed, block.down, block.down_bias, Activation::kNone, places.h, places.h}, stream);
  }
}

/// From places.normed to places.mixed.
void EmbeddingsProcessor::attend(const ConnectorBlock& block, const ConnectorPlaces& places,
                                 Modality modality, std::int64_t num_units) {
  const Stream stream = ops_.stream();
  const HeadLayout heads = head_layout(config_.connector(modality));
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(heads.head_dim)));
  ops_.linear({places.normed, block.qkv, block.qkv_bias, Activation::kNone, {}, places.qkv}, stream);
  ops_.norm_rope_across(places.qkv, heads, block.q_norm, block.k_norm, kEps, workspace_.rope(modality),
                        rope_pairs(config_.rope_layout), stream);
  ops_.attention(places.qkv, workspace_.spans(num_units), {heads, scale, 0}, places.mixed, stream);
  if (!config_.has_gates) return;
  ops_.linear({places.normed, block.gate, block.gate_bias, Activation::kNone, {}, places.logits}, stream);
  ops_.gate_heads(places.mixed, places.logits, stream);
}

}  // namespace gemmad
