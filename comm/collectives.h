// Transfers between ranks on tensors. Which implementation runs is chosen at start and logged.
#pragma once

#include <chrono>
#include <memory>
#include <string_view>

#include "comm/bootstrap.h"
#include "kernels/base/tensor.h"

namespace gemmad {

/// Collective calls: every rank makes the same ones in the same order, on tensors of the same shape and
/// dtype. An error leaves the other ranks waiting, so it is fatal for the job. Throws BootstrapError.
class Collectives {
 public:
  virtual ~Collectives() = default;

  /// "host (MPI)", "one rank": for the log.
  virtual std::string_view name() const = 0;

  /// Fills `tensor` on every rank with that of `root`. Complete on return.
  virtual void broadcast(TensorView tensor, int root) = 0;
};

/// Over the bootstrap's own transfers, on host memory. `bootstrap` must outlive it. Each call throws past
/// `timeout`.
std::unique_ptr<Collectives> make_host_collectives(Bootstrap& bootstrap, std::chrono::milliseconds timeout);

/// For one rank: every tensor is already where it belongs. Throws std::invalid_argument for a root other than
/// 0.
std::unique_ptr<Collectives> make_one_rank_collectives();

}  // namespace gemmad
