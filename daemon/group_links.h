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
  /// Each may be empty: no other slices, no other stages; what would be sent on is then dropped. `stage`:
  /// this rank's number among `stages`.
  GroupLinks(std::unique_ptr<Collectives> slices, std::unique_ptr<Collectives> stages, int stage)
      : slices_(std::move(slices)), stages_(std::move(stages)), stage_(stage) {}

  void sum_over_slices(TensorView partial, Stream stream) override;
  void receive(TensorView x, Stream stream) override;
  void send(ConstTensorView x, Stream stream) override;

  /// Time spent in the calls so far: working with others, mostly waiting for them.
  std::chrono::steady_clock::duration time_in_links() const { return time_; }

 private:
  std::unique_ptr<Collectives> slices_;
  std::unique_ptr<Collectives> stages_;
  int stage_;
  std::chrono::steady_clock::duration time_{};
};

}  // namespace gemmad
