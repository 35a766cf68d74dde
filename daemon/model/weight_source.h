// Where weights are loaded from: a model's files, a generator, or the node's copy of either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/tensor.h"

namespace gemmad {

/// A tensor in host memory, BF16, F16 or F32, which `owner` keeps alive.
struct HostTensor {
  ConstTensorView view;
  std::shared_ptr<const void> owner;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// By canonical name (daemon/model/tensor_names.h). Throws ModelFileError for a name that is not in the
  /// table, and for a file that was written to since it was opened.
  virtual HostTensor tensor(std::string_view name) const = 0;
  /// `part` of a tensor's bytes has been read and is not needed for now. Only advice.
  virtual void release(const HostTensor& tensor) const = 0;
  /// Throws ModelFileError where tensor() would for a file: to ask before giving up what cannot be loaded
  /// again.
  virtual void check_readable() const {}
  /// Bytes of all tensors.
  virtual std::uint64_t size_bytes() const = 0;
  /// True when reading a tensor reads a file.
  virtual bool is_on_disk() const = 0;
  /// True when a tensor takes memory of its own for as long as its owner lives.
  virtual bool makes_tensors() const { return false; }
};

/// What a tensor is, without its values.
struct WeightEntry {
  std::string name;  // canonical
  DType dtype = DType::kF32;
  Shape shape;
};

/// Weights where they come from first: what a node's copy of them is filled from, piece by piece.
class WeightOrigin : public WeightSource {
 public:
  /// All tensors, ordered by name: the same list in every process.
  virtual std::vector<WeightEntry> entries() const = 0;
  /// Copies bytes of the tensor `name` from `offset` on; both ends lie between two elements of the tensor,
  /// and `to` is aligned for them. May block on the disk. Throws ModelFileError for a name that is not in the
  /// table, and for a file that can no longer be read whole.
  virtual void read(std::string_view name, std::uint64_t offset, std::span<std::byte> to) const = 0;
};

}  // namespace gemmad
