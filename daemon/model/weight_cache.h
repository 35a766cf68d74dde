// The node's copy of a model's weights: read or made once, by all ranks of the node together.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "comm/shared_memory.h"
#include "daemon/model/weight_source.h"

namespace gemmad {

/// Bytes of the whole node's copy that are there, and in all. May throw, to give up.
using FillProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

/// One process's hold on the copy. Made in steps that the ranks of a node take together: one creates, the
/// others attach, each fills its part, and when all have, each seals. After that the origin is not needed any
/// more.
class WeightCache final : public WeightSource {
 public:
  /// Memory for the tensors of `origin`, not filled. Throws std::runtime_error that names both numbers
  /// when the host has less.
  static WeightCache create(const WeightOrigin& origin);
  /// `origin` must be the creator's, opened by this process. Throws SystemError, and ModelFileError when
  /// it is of another size.
  static WeightCache attach(const WeightOrigin& origin, const SharedMemory::Address& address);

  SharedMemory::Address address() const { return memory_->address(); }

  /// Copies part `part` of `num_parts` of all bytes from `origin`, and has memory for it allocated first.
  /// May block on the disk. Throws what WeightOrigin::read does, std::runtime_error when memory runs out, and
  /// what `progress` throws; calls that every few MiB. Returns the bytes copied.
  std::uint64_t fill(const WeightOrigin& origin, int part, int num_parts, const FillProgress& progress);
  /// This process reads from now on.
  void seal();

  HostTensor tensor(std::string_view name) const override;
  void release(const HostTensor& tensor) const override;
  std::uint64_t size_bytes() const override { return size_bytes_; }
  bool is_on_disk() const override { return false; }

 private:
  struct Place {
    std::uint64_t offset = 0;
    DType dtype = DType::kF32;
    Shape shape;

    std::uint64_t size_bytes() const { return ConstTensorView{nullptr, dtype, shape}.size_bytes(); }
  };

  explicit WeightCache(const WeightOrigin& origin);
  std::atomic<std::uint64_t>& filled_bytes() const;

  std::map<std::string, Place, std::less<>> places_;
  std::uint64_t size_bytes_ = 0;   // of all tensors
  std::uint64_t total_bytes_ = 0;  // with what comes before and between them
  std::shared_ptr<SharedMemory> memory_;
};

}  // namespace gemmad
