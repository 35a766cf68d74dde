#include "daemon/model/ltx/processor_workspace.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "daemon/model/ltx/connector_rope.h"
#include "daemon/model/ltx/processor_tensors.h"
#include "daemon/model/memory_cutter.h"

namespace gemmad {
namespace {

/// What the places depend on.
struct Sizes {
  const ProcessorConfig& config;
  const StateSizes& states;
  bool has_connectors;
  const ProcessorLimits& limits;
  DType dtype;
  std::int64_t max_rows;  // of a pass, with what the device fills them up with
};

void cut_results(MemoryCutter& cutter, const Sizes& sizes, ProcessorPlaces& places) {
  const ProcessorConfig& config = sizes.config;
  const std::int64_t rows = sizes.limits.max_units_at_once * sizes.limits.sequence_length;
  places.begins = cutter.place(DType::kI32, {rows});
  places.ends = cutter.place(DType::kI32, {rows});
  places.rope[0] = cutter.place(sizes.dtype, {sizes.limits.sequence_length, config.video.width()});
  const bool is_shared = config.audio.width() == config.video.width();
  places.rope[1] = is_shared
                       ? places.rope[0]
                       : cutter.place(sizes.dtype, {sizes.limits.sequence_length, config.audio.width()});
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t width = config.connector(kModalities[i]).width();
    places.features[i] = cutter.place(sizes.dtype, {sizes.limits.max_batch_tokens, width});
  }
  for (TensorView& place : places.embeddings)
    place = cutter.place(sizes.dtype, {rows, std::max(config.video.width(), config.audio.width())});
}

void cut_projections(MemoryCutter& cutter, const Sizes& sizes, ProjectionPlaces& places) {
  for (std::size_t i = 0; i < sizes.config.num_projections(); ++i)
    places.sums[i] = cutter.place(DType::kF32, {sizes.max_rows, sizes.config.projection_width(i)});
  places.normed = cutter.place(sizes.dtype, {sizes.max_rows, sizes.states.hidden_size});
  if (sizes.config.variant == ProcessorVariant::kV1)
    places.scratch = cutter.place(DType::kF32, {sizes.limits.max_batch_tokens + 1, Ops::kRangeScratch});
}

void cut_connectors(MemoryCutter& cutter, const Sizes& sizes, ConnectorPlaces& places) {
  const ConnectorConfig& video = sizes.config.video;
  const ConnectorConfig& audio = sizes.config.audio;
  const std::int64_t rows = sizes.limits.max_units_at_once * sizes.limits.sequence_length;
  const std::int64_t width = std::max(video.width(), audio.width());
  places.h = cutter.place(sizes.dtype, {rows, width});
  places.normed = cutter.place(sizes.dtype, {rows, width});
  const std::size_t shared = cutter.end_bytes();
  places.qkv = cutter.place(sizes.dtype, {rows, 3 * width});
  places.mixed = cutter.place(sizes.dtype, {rows, width});
  places.logits = cutter.place(sizes.dtype, {rows, std::max(video.num_heads, audio.num_heads)});
  cutter.rewind(shared);
  places.fed = cutter.place(sizes.dtype, {rows, kFfnFactor * width});
}

ProcessorPlaces cut_up(MemoryCutter& cutter, const Sizes& sizes) {
  ProcessorPlaces places;
  places.lists = cutter.place(DType::kI32, {max_list_numbers(sizes.limits.max_batch_tokens, sizes.max_rows)});
  if (sizes.has_connectors) cut_results(cutter, sizes, places);
  const std::size_t shared = cutter.end_bytes();
  cut_projections(cutter, sizes, places.projections);
  if (!sizes.has_connectors) return places;
  cutter.rewind(shared);
  cut_connectors(cutter, sizes, places.connectors);
  return places;
}

std::size_t bytes_of(const Sizes& sizes) {
  MemoryCutter cutter(nullptr);
  cut_up(cutter, sizes);
  return cutter.most_bytes();
}

const ProcessorLimits& checked(const ProcessorLimits& limits) {
  if (limits.max_batch_tokens < 1 || limits.max_units_at_once < 1 || limits.sequence_length < 1) {
    throw std::invalid_argument("processor workspace: max_batch_tokens is " +
                                std::to_string(limits.max_batch_tokens) + ", max_units_at_once is " +
                                std::to_string(limits.max_units_at_once) + ", sequence_length is " +
                                std::to_string(limits.sequence_length) + ", all must be positive");
  }
  if (limits.sequence_length % kNumRegisters != 0) {
    throw std::invalid_argument("processor workspace: sequence_length is " +
                                std::to_string(limits.sequence_length) + ", must be a multiple of " +
                                std::to_string(kNumRegisters));
  }
  return limits;
}

/// The first rows and columns' worth of a place.
TensorView part(const TensorView& place, std::int64_t rows, std::int64_t columns) {
  return {place.data, place.dtype, {rows, columns}};
}

void upload_spans(const ProcessorPlaces& places, std::int64_t sequence_length, Ops& ops) {
  std::vector<std::int32_t> begins(static_cast<std::size_t>(places.begins.shape[0]));
  std::vector<std::int32_t> ends(begins.size());
  for (std::size_t row = 0; row < begins.size(); ++row) {
    const auto in_sequence = static_cast<std::int64_t>(row) % sequence_length;
    begins[row] = static_cast<std::int32_t>(static_cast<std::int64_t>(row) - in_sequence);
    ends[row] = static_cast<std::int32_t>(begins[row] + sequence_length);
  }
  ops.upload(places.begins, {begins.data(), DType::kI32, places.begins.shape}, ops.stream());
  ops.upload(places.ends, {ends.data(), DType::kI32, places.ends.shape}, ops.stream());
}

void upload_rope(const ProcessorConfig& config, const TensorView& to, Ops& ops) {
  const std::vector<float> table =
      make_connector_rope(to.shape[1], config.has_double_grid, config.max_pos, to.shape[0]);
  ops.upload(to, {table.data(), DType::kF32, to.shape}, ops.stream());
}

}  // namespace

ProcessorWorkspace::ProcessorWorkspace(const ProcessorConfig& config, const StateSizes& states,
                                       bool has_connectors, Ops& ops, const ProcessorLimits& limits)
    : config_(config), has_connectors_(has_connectors), limits_(checked(limits)) {
  const Sizes sizes{
      config, states, has_connectors, limits_, ops.compute_dtype(), ops.padded_rows(limits.max_batch_tokens)};
  memory_ = Buffer(ops.memory(), bytes_of(sizes));
  MemoryCutter cutter(&memory_);
  places_ = cut_up(cutter, sizes);
  if (!has_connectors) return;
  upload_spans(places_, limits.sequence_length, ops);
  upload_rope(config, places_.rope[0], ops);
  if (places_.rope[1].data != places_.rope[0].data) upload_rope(config, places_.rope[1], ops);
}

TensorView ProcessorWorkspace::sums(std::size_t projection, std::int64_t num_rows) const {
  return part(places_.projections.sums.at(projection), num_rows, config_.projection_width(projection));
}

TensorView ProcessorWorkspace::normed_states(std::int64_t num_rows) const {
  const TensorView& place = places_.projections.normed;
  return part(place, num_rows, place.shape[1]);
}

TensorView ProcessorWorkspace::range_scratch(std::int64_t num_sequences) const {
  return part(places_.projections.scratch, num_sequences, Ops::kRangeScratch);
}

TensorView ProcessorWorkspace::features(Modality modality, std::int64_t num_rows) const {
  return part(places_.features[static_cast<std::size_t>(modality)], num_rows,
              config_.connector(modality).width());
}

ConnectorPlaces ProcessorWorkspace::connector_places(Modality modality, std::int64_t num_units) const {
  const ConnectorPlaces& all = places_.connectors;
  const ConnectorConfig& connector = config_.connector(modality);
  const std::int64_t rows = connector_rows(num_units);
  const std::int64_t width = connector.width();
  return {part(all.h, rows, width),
          part(all.normed, rows, width),
          part(all.qkv, rows, 3 * width),
          part(all.mixed, rows, width),
          part(all.logits, rows, connector.num_heads),
          part(all.fed, rows, kFfnFactor * width)};
}

TensorView ProcessorWorkspace::embeddings(Modality modality, std::int64_t num_units,
                                          std::size_t place) const {
  return part(places_.embeddings.at(place), connector_rows(num_units), config_.connector(modality).width());
}

ConstTensorView ProcessorWorkspace::rope(Modality modality) const {
  return places_.rope[static_cast<std::size_t>(modality)];
}

AttentionSpans ProcessorWorkspace::spans(std::int64_t num_units) const {
  const Shape rows{connector_rows(num_units)};
  return {{places_.begins.data, DType::kI32, rows}, {places_.ends.data, DType::kI32, rows}};
}

TensorView ProcessorWorkspace::list(const ListRange& range) const {
  return {
      places_.lists.as<std::int32_t>() + range.first, DType::kI32, {static_cast<std::int64_t>(range.count)}};
}

std::uint64_t ProcessorWorkspace::size_bytes(const ProcessorConfig& config, const StateSizes& states,
                                             bool has_connectors, const Ops& ops,
                                             const ProcessorLimits& limits) {
  return bytes_of({config, states, has_connectors, checked(limits), ops.compute_dtype(),
                   ops.padded_rows(limits.max_batch_tokens)});
}

}  // namespace gemmad
