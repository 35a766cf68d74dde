// Where sequences are continued: by the encoder's own model, or by one of its own that is awake while needed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/generator.h"
#include "daemon/residency.h"

namespace gemmad {

/// A model for generation alone.
struct SeparateModel {
  Residency& residency;  // nothing is loaded there yet
  Residency::Origins origins;
  WeightsCache cache = WeightsCache::kNode;
};

/// The layout of a model for generation beside an encoder's: the same, where sequences can be dealt in it.
ShardSettings settings_for_generation(ShardSettings encoder);

/// Every call is collective, as those of Residency. Used by the engine thread alone.
class GenerationHost {
 public:
  /// `encoder`: the residency of the encoder's model, whose mode a separate model takes as far as it can
  /// (adaptive: batch_parallel). `parts` are of the model that generates.
  GenerationHost(const GeneratorParts& parts, Residency& encoder, std::optional<SeparateModel> separate)
      : parts_(parts), encoder_(encoder), separate_(std::move(separate)) {}

  /// Carries out `order`, after waking the model and taking memory where that is needed. Throws StepFailed
  /// when it cannot be had: nothing has begun then.
  StepReport step(const GenerationOrder& order);
  /// Ends all sequences without a word and gives the memory back: another deployment of the encoder comes. A
  /// separate model follows it with the next step.
  void suspend();
  /// The same, and a separate model sleeps until the next step.
  void release();

  /// The numbers of the replicas that sequences are dealt to: the one that `rank` belongs to, or all where it
  /// belongs to none, as -1 does.
  std::vector<std::int32_t> replicas(int rank) const;
  /// Grows whenever memory is taken or given back.
  std::uint64_t version() const { return version_; }
  /// Bytes of device memory in use, a separate model's weights included.
  std::uint64_t size_bytes() const;

 private:
  void prepare();
  void wake_separate();
  Residency& residency() { return separate_ ? separate_->residency : encoder_; }

  GeneratorParts parts_;
  Residency& encoder_;
  std::optional<SeparateModel> separate_;
  bool is_loaded_ = false;  // a separate model, once
  std::unique_ptr<Generator> generator_;
  std::uint64_t version_ = 0;
};

}  // namespace gemmad
