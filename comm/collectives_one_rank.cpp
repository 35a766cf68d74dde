#include <stdexcept>
#include <string>

#include "comm/collectives.h"

namespace gemmad {

namespace {

class OneRankCollectives final : public Collectives {
 public:
  std::string_view name() const override { return "one rank"; }

  void broadcast(TensorView, int root) override {
    if (root != 0) throw std::invalid_argument("broadcast: root " + std::to_string(root) + " of 1 rank");
  }
};

}  // namespace

std::unique_ptr<Collectives> make_one_rank_collectives() {
  return std::make_unique<OneRankCollectives>();
}

}  // namespace gemmad
