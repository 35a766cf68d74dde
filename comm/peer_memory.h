// Device memory that the ranks of one node read of each other.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/peer_sums.h"
#include "kernels/base/tensor.h"

namespace gemmad {

/// True when `ranks`, two to PeerAddends::kMaxPeers, are all on one node and each one's current device can
/// read every other's, as far as this process sees them. The same answer on all of them. Collective among
/// `ranks`. Throws BootstrapError.
bool peers_can_share(Bootstrap& bootstrap, const std::vector<int>& ranks, std::chrono::milliseconds timeout);

/// What a group needs for PeerAddends: of each member two buffers for addends, used in turn, one for sums,
/// the signals and the counters; those of the others are mapped here. Members are numbered as in `ranks`.
/// Errors of the device and of the other members alike are BootstrapError.
class PeerBuffers final : public PeerSums {
 public:
  static constexpr int kNumBuffers = 2;

  /// Collective among `ranks`, for which peers_can_share() holds. On the current device. Allocates three
  /// times `buffer_bytes`; calls that wait for others throw past `timeout`.
  PeerBuffers(Bootstrap& bootstrap, std::vector<int> ranks, std::size_t buffer_bytes,
              std::chrono::milliseconds timeout);
  PeerBuffers(const PeerBuffers&) = delete;
  PeerBuffers& operator=(const PeerBuffers&) = delete;
  /// Without close() before, mappings and memory stay until the process ends: others may be reading them, and
  /// to free them could wait for a kernel that waits for others.
  ~PeerBuffers() override = default;

  void close() override;
  PeerAddends addends(int which) const override;
  TensorView own(int which, DType dtype, const Shape& shape) const override;

 private:
  void allocate();
  void map_others();
  std::byte* region(std::size_t member, int number) const;

  Bootstrap& bootstrap_;
  std::vector<int> ranks_;
  std::size_t own_ = 0;
  std::size_t buffer_bytes_;  // of one, asked for
  std::size_t stride_;        // from one buffer to the next
  std::chrono::milliseconds timeout_;
  std::array<std::byte*, PeerAddends::kMaxPeers> memory_{};  // by member
};

}  // namespace gemmad
