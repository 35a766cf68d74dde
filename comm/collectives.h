// Transfers among a group of ranks on tensors. Which implementation runs is chosen at start and logged.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "comm/bootstrap.h"
#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"

namespace gemmad {

/// The members of a group are numbered 0 .. size - 1, in the order in which it was made; these numbers are
/// what `root`, `to` and `from` mean. broadcast and all_reduce are collective: every member makes the same
/// calls in the same order, on tensors of the same shape and dtype. Calls take effect in the order of
/// `stream`; those of the implementations on host memory are complete on return. An error leaves the other
/// members waiting, so it is fatal for the daemon. Throws BootstrapError.
class Collectives {
 public:
  virtual ~Collectives() = default;

  /// Fills `tensor` on every member with that of `root`.
  virtual void broadcast(TensorView tensor, int root, Stream stream) = 0;

  /// `tensor` := the sum of all members' tensors, F32. Every member gets the same bytes, and the same ones
  /// for the same input: the order of the sum is that of the members.
  virtual void all_reduce(TensorView tensor, Stream stream) = 0;

  /// Hands `tensor` to member `to`, which receives one of the same size.
  virtual void send(ConstTensorView tensor, int to, Stream stream) = 0;
  virtual void receive(TensorView tensor, int from, Stream stream) = 0;
};

/// One implementation of groups.
struct Transport {
  std::string_view name;  // "host (MPI)", "one rank": for the log
  /// Makes a group of `ranks` on each of them; this rank is one. Every rank makes its groups in the same
  /// order. Each call of the group throws past `timeout`.
  std::function<std::unique_ptr<Collectives>(std::vector<int> ranks, std::chrono::milliseconds timeout)>
      group;
};

/// Over the bootstrap's exchanges, on host memory. `bootstrap` must outlive the groups.
Transport host_transport(Bootstrap& bootstrap);

/// For one rank: groups of itself alone, in which every tensor is already where it belongs. They throw
/// std::invalid_argument for any other member.
Transport one_rank_transport();

}  // namespace gemmad
