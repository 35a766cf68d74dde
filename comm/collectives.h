// Transfers among a group of ranks on tensors. Which implementation runs is chosen at start and logged.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/peer_sums.h"
#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"

namespace gemmad {

/// The members of a group are numbered 0 .. size - 1, in the order in which it was made; these numbers are
/// what `root`, `to` and `from` mean. broadcast, all_reduce and all_gather are collective: every member makes
/// the same calls in the same order, on tensors of the same shape and dtype. Calls take effect in the order
/// of `stream`; those of the implementations on host memory are complete on return. An error leaves the other
/// members waiting, so it is fatal for the daemon. Throws BootstrapError; std::invalid_argument for tensors
/// that do not fit the call.
class Collectives {
 public:
  virtual ~Collectives() = default;

  /// Fills `tensor` on every member with that of `root`.
  virtual void broadcast(TensorView tensor, int root, Stream stream) = 0;

  /// `tensor` := the sum of all members' tensors, F32 (over NCCL also BF16, rounded at each addition). Every
  /// member gets the same bytes, and the same ones for the same input. The order of the sum is that of the
  /// members, except over NCCL, which has its own.
  virtual void all_reduce(TensorView tensor, Stream stream) = 0;

  /// `all` := `mine` of all members, member after member, of any dtype. `mine` may be its own place in `all`,
  /// and in a group of one rank must be.
  virtual void all_gather(ConstTensorView mine, TensorView all, Stream stream) = 0;

  /// Hands `tensor` to member `to`, which receives one of the same size.
  virtual void send(ConstTensorView tensor, int to, Stream stream) = 0;
  virtual void receive(TensorView tensor, int from, Stream stream) = 0;

  /// The calls between begin_group() and end_group() are started together, by the latter, where that is of
  /// use; elsewhere one after another, so their order must do for that too. Not nested.
  virtual void begin_group() {}
  virtual void end_group() {}

  /// Blocks until all work on `stream` is done, watching the group meanwhile. Throws BootstrapError past the
  /// timeout, when a member is lost or when the device fails; the group is then of no more use. Nothing to
  /// wait for where calls are complete on return. Not while `stream` is being captured.
  virtual void wait(Stream) {}
};

/// One implementation of groups.
struct Transport {
  std::string_view name;  // "host (MPI)", "one rank": for the log
  /// Makes a group of `ranks` on each of them; this rank is one. Every rank makes its groups in the same
  /// order. Each call of the group throws past `timeout`.
  std::function<std::unique_ptr<Collectives>(std::vector<int> ranks, std::chrono::milliseconds timeout)>
      group;
  /// Memory for sums of up to `buffer_bytes` among `ranks`, on each of them, null on all where their devices
  /// cannot read each other. Collective among them. Empty where there is nothing like that at all.
  std::function<std::unique_ptr<PeerSums>(const std::vector<int>& ranks, std::size_t buffer_bytes,
                                          std::chrono::milliseconds timeout)>
      peer_sums = {};
};

/// Over the bootstrap's exchanges, on host memory. `bootstrap` must outlive the groups.
Transport host_transport(Bootstrap& bootstrap);

/// For one rank: groups of itself alone, in which every tensor is already where it belongs. They throw
/// std::invalid_argument for any other member.
Transport one_rank_transport();

}  // namespace gemmad
