#include <span>

#include "comm/collectives.h"

namespace gemmad {

namespace {

class HostCollectives final : public Collectives {
 public:
  HostCollectives(Bootstrap& bootstrap, std::chrono::milliseconds timeout)
      : bootstrap_(bootstrap), timeout_(timeout) {}

  std::string_view name() const override { return "host (MPI)"; }

  void broadcast(TensorView tensor, int root) override {
    bootstrap_.broadcast(std::span(tensor.as<std::byte>(), tensor.size_bytes()), root, timeout_);
  }

 private:
  Bootstrap& bootstrap_;
  std::chrono::milliseconds timeout_;
};

}  // namespace

std::unique_ptr<Collectives> make_host_collectives(Bootstrap& bootstrap, std::chrono::milliseconds timeout) {
  return std::make_unique<HostCollectives>(bootstrap, timeout);
}

}  // namespace gemmad
