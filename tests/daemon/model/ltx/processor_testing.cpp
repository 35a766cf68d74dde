#include "tests/daemon/model/ltx/processor_testing.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>
#include <utility>

#include "daemon/model/ltx/processor_tensors.h"
#include "kernels/base/float_formats.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/support/require.h"

namespace gemmad {
namespace {

constexpr int kThreads = 2;

/// A tensor's numbers, at any address, as F32.
std::vector<float> floats(const std::byte* data, DType dtype, std::int64_t count) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(dtype == DType::kBF16 ? bf16_to_f32(load_u16(data, i)) : load_f32(data, i));
  return values;
}

/// How large the values of a tensor are, so that activations keep their size.
double deviation_of(const ProcessorTensor& tensor) {
  if (tensor.name.ends_with("_norm.weight")) return 0.2;
  if (tensor.name.ends_with("learnable_registers")) return 1;
  if (tensor.shape.rank() == 1) return 0.3;
  return 1 / std::sqrt(static_cast<double>(tensor.shape[1]));
}

}  // namespace

void PackedStates::add(const std::vector<std::vector<float>>& states) {
  const auto num_rows = static_cast<std::int64_t>(states.front().size()) / sizes_.hidden_size;
  for (std::size_t i = 0; i < states_.size(); ++i)
    states_[i].insert(states_[i].end(), states[i].begin(), states[i].end());
  offsets_.push_back(offsets_.back() + num_rows);
}

ConstTensorView PackedStates::state(std::int64_t index) const {
  return {
      states_.at(static_cast<std::size_t>(index)).data(), DType::kF32, {offsets_.back(), sizes_.hidden_size}};
}

ConstTensorView PackedStates::state(std::int64_t index, std::size_t prompt) const {
  return {state(index).as<float>() + offsets_[prompt] * sizes_.hidden_size,
          DType::kF32,
          {num_rows(prompt), sizes_.hidden_size}};
}

PackedStates PackedStates::only(std::size_t prompt) const {
  std::vector<std::vector<float>> states;
  for (std::int64_t index = 0; index < sizes_.num_states; ++index) {
    const ConstTensorView rows = state(index, prompt);
    states.emplace_back(rows.as<float>(), rows.as<float>() + rows.shape.num_elements());
  }
  PackedStates one(sizes_);
  one.add(states);
  return one;
}

void PackedStates::fill(std::size_t prompt, float value) {
  for (std::vector<float>& state : states_) {
    std::fill(state.begin() + offsets_[prompt] * sizes_.hidden_size,
              state.begin() + offsets_[prompt + 1] * sizes_.hidden_size, value);
  }
}

std::vector<float> normal_values(std::size_t count, double deviation, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    double sum = -6;
    for (int i = 0; i < 12; ++i)
      sum += static_cast<double>(random() >> 11) * 0x1p-53;
    value = static_cast<float>(deviation * sum);
  }
  return values;
}

PackedStates random_states(const StateSizes& sizes, const std::vector<std::int64_t>& lengths,
                           double deviation, std::uint64_t seed) {
  PackedStates packed(sizes);
  for (const std::int64_t length : lengths) {
    std::vector<std::vector<float>> states;
    for (std::int64_t index = 0; index < sizes.num_states; ++index) {
      const double own = deviation * (1 + 0.3 * static_cast<double>(index));
      states.push_back(
          normal_values(static_cast<std::size_t>(length * sizes.hidden_size), own, seed * 1000003 + 17));
      ++seed;
    }
    packed.add(states);
  }
  return packed;
}

TestProcessor::TestProcessor(const ProcessorConfig& config, const StateSizes& sizes, std::uint64_t seed) {
  for (const ProcessorTensor& tensor : expected_tensors(config, sizes)) {
    const auto values = std::make_shared<std::vector<float>>(normal_values(
        static_cast<std::size_t>(tensor.shape.num_elements()), deviation_of(tensor), seed++ * 7919));
    if (tensor.name.ends_with("_norm.weight")) {
      for (float& value : *values)
        value += 1;
    }
    tensors_[tensor.name] = {{values->data(), DType::kF32, tensor.shape}, values};
  }
}

ConstTensorView UnitResult::features_view() const {
  return {features.data(), DType::kF32, {static_cast<std::int64_t>(features.size()) / width, width}};
}

ConstTensorView UnitResult::embeddings_view() const {
  return {embeddings.data(), DType::kF32, {static_cast<std::int64_t>(embeddings.size()) / width, width}};
}

CollectingProcessorSink::CollectingProcessorSink(Ops& ops, std::vector<ProcessorUnit> units,
                                                 std::vector<std::int64_t> num_rows,
                                                 std::int64_t sequence_length)
    : ops_(ops),
      units_(std::move(units)),
      num_rows_(std::move(num_rows)),
      sequence_length_(sequence_length),
      results_(units_.size()) {}

std::vector<float> CollectingProcessorSink::to_host(ConstTensorView x, const Moment& ready) {
  std::vector<std::byte> bytes(x.size_bytes());
  // By the moment, on another stream: so that one which comes too early shows.
  ops_.wait_for(ops_.copy_stream(), ready);
  ops_.copy_to_host({bytes.data(), x.dtype, x.shape}, x, ops_.copy_stream());
  ops_.synchronize(ops_.copy_stream());
  return floats(bytes.data(), x.dtype, x.shape.num_elements());
}

void CollectingProcessorSink::features(Modality modality, std::span<const std::size_t> units,
                                       ConstTensorView x, const Moment& ready) {
  if (++num_features_calls_[static_cast<std::size_t>(modality)] > 1) problem_ = "features came twice";
  const std::vector<float> values = to_host(x, ready);
  std::vector<std::size_t> expected;
  std::int64_t row = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    if (units_[u].modality != modality) continue;
    expected.push_back(u);
    UnitResult& result = results_[u];
    result.width = x.shape[1];
    const auto begin = values.begin() + row * result.width;
    row += num_rows_[u];
    if (row > x.shape[0]) break;
    result.features.assign(begin, values.begin() + row * result.width);
  }
  if (row != x.shape[0] || !std::equal(units.begin(), units.end(), expected.begin(), expected.end()))
    problem_ = "features are not those of the modality's units";
}

void CollectingProcessorSink::embeddings(Modality modality, std::span<const std::size_t> units,
                                         ConstTensorView x, const Moment& ready) {
  const std::vector<float> values = to_host(x, ready);
  if (last_.data != nullptr && to_host(last_, {ops_.stream()}) != last_values_)
    problem_ = "embeddings were overwritten before the next call returned";
  if (last_.data == x.data) problem_ = "the place of embeddings is that of the call before";
  last_ = x;
  last_values_ = values;
  turns_.push_back(units.size());
  if (x.shape[0] != static_cast<std::int64_t>(units.size()) * sequence_length_)
    problem_ = "embeddings have another number of rows";
  for (std::size_t i = 0; i < units.size(); ++i) {
    const std::size_t u = units[i];
    if (units_[u].modality != modality || !units_[u].wants_embeddings)
      problem_ = "embeddings of a unit that does not want them";
    embedded_.push_back(u);
    UnitResult& result = results_[u];
    result.width = x.shape[1];
    const std::int64_t count = sequence_length_ * result.width;
    const auto begin = values.begin() + static_cast<std::int64_t>(i) * count;
    result.embeddings.assign(begin, begin + count);
  }
}

void CollectingProcessorSink::require_in_order() const {
  require(problem_.empty(), problem_);
  std::vector<std::size_t> expected;
  for (const Modality modality : kModalities) {
    bool wants_features = false;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      if (units_[u].modality != modality) continue;
      wants_features = wants_features || units_[u].wants_features;
      if (units_[u].wants_embeddings) expected.push_back(u);
    }
    require((num_features_calls_[static_cast<std::size_t>(modality)] == 1) == wants_features,
            "features come when they are wanted");
  }
  require(embedded_ == expected, "embeddings come for the units that want them, in their order");
}

ProcessorTesting::ProcessorTesting(const WeightSource& source, const ProcessorConfig& config,
                                   const ProcessorLimits& limits, const StateSizes& sizes)
    : ProcessorTesting(source, config, limits, sizes, whole_processor(sizes), make_cpu_ops(kThreads)) {}

ProcessorTesting::ProcessorTesting(const WeightSource& source, const ProcessorConfig& config,
                                   const ProcessorLimits& limits, const StateSizes& sizes,
                                   const ProcessorShare& share, std::shared_ptr<Ops> ops)
    : ops_(std::move(ops)), share_(share) {
  ProcessorWeights weights = load_processor_weights(source, config, sizes, share, *ops_, kThreads, {});
  workspace_ = std::make_unique<ProcessorWorkspace>(config, sizes, share.has_connectors, *ops_, limits);
  processor_ = std::make_unique<EmbeddingsProcessor>(config, sizes, std::move(weights), *workspace_, *ops_);
}

void ProcessorTesting::begin(const PackedStates& states, const std::vector<ProcessorUnit>& units,
                             bool continues) {
  units_ = units;
  num_rows_.clear();
  for (const ProcessorUnit& unit : units)
    num_rows_.push_back(states.num_rows(unit.prompt));
  processor_->begin(states.offsets(), units, continues);
}

void ProcessorTesting::add_states(const PackedStates& states) {
  for (std::int64_t index = share_.states.begin; index < share_.states.end; ++index) {
    const ConstTensorView host = states.state(index);
    const DType dtype = ops_->compute_dtype();
    const Buffer buffer(ops_->memory(), TensorView{nullptr, dtype, host.shape}.size_bytes());
    ops_->upload(buffer.view(dtype, host.shape), host, ops_->stream());
    processor_->add_state(index, buffer.view(dtype, host.shape));
    ops_->synchronize(ops_->stream());
  }
}

CollectingProcessorSink ProcessorTesting::finish() {
  CollectingProcessorSink sink(*ops_, units_, num_rows_, processor_->limits().sequence_length);
  processor_->finish(sink);
  sink.require_in_order();
  return sink;
}

std::vector<UnitResult> ProcessorTesting::run(const PackedStates& states,
                                              const std::vector<ProcessorUnit>& units) {
  begin(states, units);
  add_states(states);
  return finish().results();
}

std::vector<ProcessorUnit> all_units(std::size_t num_prompts) {
  std::vector<ProcessorUnit> units;
  for (std::size_t prompt = 0; prompt < num_prompts; ++prompt) {
    for (const Modality modality : kModalities)
      units.push_back({prompt, modality, true, true});
  }
  return units;
}

}  // namespace gemmad
