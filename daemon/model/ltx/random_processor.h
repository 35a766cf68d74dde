// A processor without files, for benchmarks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/processor_config.h"
#include "daemon/model/weight_source.h"

namespace gemmad {

/// All tensors of a processor, in BF16, made when they are asked for of RandomValues (random_weights.h):
/// about normal, with deviation 0.02; norm weights as much around 1; registers with deviation 1. They depend
/// on seed, name and index alone. A tensor lives as long as its owner; nothing else is kept. Thread-safe.
class RandomProcessor final : public WeightOrigin {
 public:
  /// Makes large tensors with `num_threads` threads. Throws ConfigError as check_fits does.
  RandomProcessor(const ProcessorConfig& config, const StateSizes& states, std::uint64_t seed,
                  int num_threads);

  /// Throws std::system_error when no thread can be started, std::bad_alloc.
  HostTensor tensor(std::string_view name) const override;
  void release(const HostTensor&) const override {}
  std::uint64_t size_bytes() const override { return size_bytes_; }
  bool is_on_disk() const override { return false; }
  bool makes_tensors() const override { return true; }
  std::vector<WeightEntry> entries() const override;
  void read(std::string_view name, std::uint64_t offset, std::span<std::byte> to) const override;

 private:
  const Shape& shape_of(std::string_view name) const;
  void make(std::string_view name, std::uint64_t first, std::span<std::uint16_t> to) const;

  std::uint64_t seed_;
  int num_threads_;
  std::map<std::string, Shape, std::less<>> shapes_;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace gemmad
