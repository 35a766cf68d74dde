// Tensors without files: made when they are asked for, the same for the same seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/model/weight_source.h"

namespace gemmad {

/// The values of one tensor of random weights, as bits of BF16. They depend on `seed`, the tensor's canonical
/// `name` and the element's index (rows one after the other) and on nothing else. Element i is
///
///     h = mix(key + (i + 1) * 0x9e3779b97f4a7c15)         key = mix(mix(seed) ^ fnv1a(name))
///     bf16(float(s - 131070) * 0x1.1bc77ap-21)             s = the sum of h's four 16-bit quarters
///
/// all modulo 2^64, where mix is splitmix64's finalizer, fnv1a the 64-bit FNV-1a, and bf16 rounds to nearest,
/// ties to even. s is about normally distributed: mean 0, deviation 0.02, none beyond 0.07.
/// scripts/random_weights.py makes the same.
class RandomValues {
 public:
  RandomValues(std::uint64_t seed, std::string_view name);

  /// Elements from `first` on.
  void fill(std::uint64_t first, std::span<std::uint16_t> to) const;
  /// The same on up to `num_threads` threads, where there are many. Throws std::system_error.
  void fill(std::uint64_t first, std::span<std::uint16_t> to, int num_threads) const;

 private:
  std::uint64_t key_;
};

/// A part of a model, all its tensors in BF16. A tensor lives as long as its owner; nothing else is kept.
/// Thread-safe.
class RandomTensors : public WeightOrigin {
 public:
  /// Throws std::system_error when no thread can be started, std::bad_alloc.
  HostTensor tensor(std::string_view name) const override;
  void release(const HostTensor&) const override {}
  std::uint64_t size_bytes() const override { return size_bytes_; }
  bool is_on_disk() const override { return false; }
  bool makes_tensors() const override { return true; }
  std::vector<WeightEntry> entries() const override;
  void read(std::string_view name, std::uint64_t offset, std::span<std::byte> to) const override;

 protected:
  /// Makes large tensors with `num_threads` threads.
  RandomTensors(std::uint64_t seed, int num_threads) : seed_(seed), num_threads_(num_threads) {}
  void add(const std::string& name, const Shape& shape);

  /// The elements of a tensor from `first` on. They depend on the seed, `name` and the index alone.
  virtual void make(std::string_view name, const Shape& shape, std::uint64_t first,
                    std::span<std::uint16_t> to) const = 0;
  /// The same of RandomValues.
  void fill(std::string_view name, std::uint64_t first, std::span<std::uint16_t> to) const;

 private:
  const Shape& shape_of(std::string_view name) const;

  std::uint64_t seed_;
  int num_threads_;
  std::map<std::string, Shape, std::less<>> shapes_;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace gemmad
