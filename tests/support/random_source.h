// Models without files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "config/model_config.h"
#include "daemon/model/weight_source.h"

namespace gemmad {

/// Weights of the shapes that a config gives, in F32: projections with values of about 1 / sqrt(inputs), so
/// that activations keep their size through the layers; norms and the table around 0.05. A tensor's values
/// depend on the seed, its name and its shape alone, so every shard sees the same model. Thread-safe.
class RandomSource final : public WeightSource {
 public:
  RandomSource(const TextConfig& config, std::uint64_t seed);

  /// Throws std::out_of_range for a name that the model has not.
  HostTensor tensor(std::string_view name) const override;
  void release(const HostTensor&) const override {}
  std::uint64_t size_bytes() const override { return size_bytes_; }
  bool is_on_disk() const override { return false; }

 private:
  std::map<std::string, HostTensor, std::less<>> tensors_;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace gemmad
