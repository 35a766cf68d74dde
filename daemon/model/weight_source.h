// Where weights are loaded from: a model's files, or the node's copy of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

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
  /// table.
  virtual HostTensor tensor(std::string_view name) const = 0;
  /// `part` of a tensor's bytes has been read and is not needed for now. Only advice.
  virtual void release(const HostTensor& tensor) const = 0;
  /// Bytes of all tensors.
  virtual std::uint64_t size_bytes() const = 0;
  /// True when reading a tensor reads a file.
  virtual bool is_on_disk() const = 0;
};

}  // namespace gemmad
