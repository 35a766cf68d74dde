#include "daemon/generation_host.h"

#include <algorithm>

#include "daemon/agreement.h"

namespace gemmad {

ShardSettings settings_for_generation(ShardSettings encoder) {
  if (encoder.mode == Mode::kAdaptive) encoder.mode = Mode::kBatchParallel;
  return encoder;
}

StepReport GenerationHost::step(const GenerationOrder& order) {
  if (!generator_) prepare();
  return generator_->step(order);
}

void GenerationHost::prepare() {
  if (separate_) {
    wake_separate();
  } else if (encoder_.asleep()) {
    encoder_.wake();
  }
  std::unique_ptr<Generator> made;
  agree(parts_.bootstrap, parts_.compute_timeout,
        [&] { made = std::make_unique<Generator>(parts_, residency().deployment()); });
  generator_ = std::move(made);
  ++version_;
}

void GenerationHost::wake_separate() {
  const ShardSettings wanted = settings_for_generation(encoder_.settings());
  Residency& residency = separate_->residency;
  if (!is_loaded_) {
    residency.load(separate_->origins, separate_->cache, wanted, [] {});
    if (separate_->cache == WeightsCache::kNode) separate_->origins = {};
    is_loaded_ = true;
  }
  if (!(residency.settings() == wanted)) residency.deploy(wanted);
  residency.wake();
}

std::vector<std::int32_t> GenerationHost::replicas(int rank) const {
  const ShardSettings settings =
      separate_ ? settings_for_generation(encoder_.settings()) : encoder_.settings();
  const ShardPlan plan = make_shard_plan(parts_.model, settings, parts_.bootstrap.info().num_ranks);
  std::vector<std::int32_t> all;
  for (std::size_t number = 0; number < plan.replicas.size(); ++number) {
    const std::vector<Shard>& shards = plan.replicas[number].shards;
    const auto replica = static_cast<std::int32_t>(number);
    if (std::any_of(shards.begin(), shards.end(), [&](const Shard& shard) { return shard.rank == rank; }))
      return {replica};
    all.push_back(replica);
  }
  return all;
}

std::uint64_t GenerationHost::size_bytes() const {
  const std::uint64_t sequences = generator_ ? generator_->size_bytes() : 0;
  if (!separate_ || separate_->residency.asleep()) return sequences;
  const Deployment& model = separate_->residency.deployment();
  return sequences + model.weight_bytes() + model.workspace_bytes();
}

void GenerationHost::suspend() {
  if (generator_) ++version_;
  generator_ = nullptr;
}

void GenerationHost::release() {
  suspend();
  if (separate_ && is_loaded_) separate_->residency.rest();
}

}  // namespace gemmad
