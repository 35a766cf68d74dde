// The links of a part of the model, over the groups of ranks that hold the other parts.
#pragma once

#include <chrono>
#include <memory>

#include "comm/collectives.h"
#include "daemon/model/part_links.h"

namespace gemmad {

/// Used by the engine thread alone.
class GroupLinks final : public PartLinks {
 public:
  /// Each may be empty: no other slices, no other stages; what would be sent on is then dropped. `place`:
  /// this rank's number among the `size` members of `slices` or `stages`. `peers`, of the same members as
  /// `slices`, sums in their place.
  GroupLinks(std::unique_ptr<Collectives> slices, std::unique_ptr<PeerSums> peers,
             std::unique_ptr<Collectives> stages, int place, int size)
      : slices_(std::move(slices)),
        peers_(std::move(peers)),
        stages_(std::move(stages)),
        place_(place),
        size_(size) {}

  TensorView addend(TensorView own, int which) override;
  const PeerAddends* sum_over_slices(TensorView addend, int which, Stream stream) override;
  void receive(TensorView x, Stream stream) override;
  void send(ConstTensorView x, Stream stream) override;
  Slices slices() const override;
  void gather_over_slices(ConstTensorView mine, TensorView all, Stream stream) override;
  void send_to_first(ConstTensorView x, Stream stream) override;
  void receive_from(int last, TensorView x, Stream stream) override;
  void wait(Stream stream) override;

  /// Collective: gives back what the members share. Nothing can be summed after that. Throws BootstrapError.
  void close();

  /// Time spent in the calls so far: working with others, mostly waiting for them.
  std::chrono::steady_clock::duration time_in_links() const { return time_; }

 private:
  std::unique_ptr<Collectives> slices_;
  std::unique_ptr<PeerSums> peers_;
  PeerAddends addends_;  // of the sum at hand
  std::unique_ptr<Collectives> stages_;
  int place_;
  int size_;
  std::chrono::steady_clock::duration time_{};
};

}  // namespace gemmad
