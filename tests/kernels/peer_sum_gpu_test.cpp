// Sums over members that are all on this GPU, each with a stream of its own: what needs no second GPU to
// check, for as many members as there can be. tests/comm/gpu_peer_sums_check.cpp checks them between GPUs.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/base/peer_addends.h"
#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

using Floats = std::vector<float>;

constexpr int kBuffers = 2;  // for addends, in turn
constexpr std::int64_t kOneStep = std::numeric_limits<std::int64_t>::max();

/// A kernel that waits for another one has no deadline; nor has giving back what it uses.
void wait_or_exit(OpTesting& testing) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!testing.ops().is_done(testing.stream())) {
    if (std::chrono::steady_clock::now() < deadline) continue;
    std::fprintf(stderr,
                 "members on one GPU wait for each other for good; they need queues of their own: "
                 "CUDA_DEVICE_MAX_CONNECTIONS=32\n");
    std::_Exit(1);
  }
}

struct Member {
  explicit Member(const Shape& shape) : weight(testing.put(random_values(shape[1], 1, 0.1f), {shape[1]})) {
    for (DeviceTensor& addend : addends)
      addend = testing.empty(shape);
    sums = testing.empty(shape);
    x = testing.empty(shape);
    normed = testing.empty(shape);
    constexpr std::int64_t kSignals = PeerAddends::kMaxPeers * PeerAddends::kMaxBlocks;
    signals = testing.put(std::vector<std::int32_t>(kSignals));
    epochs = testing.put(std::vector<std::int32_t>(PeerAddends::kMaxBlocks));
    testing.ops().synchronize(testing.stream());
  }

  OpTesting testing;
  DeviceTensor weight;
  DeviceTensor addends[kBuffers];
  DeviceTensor sums, x, normed, signals, epochs;
};

PeerAddends peers_of(const std::vector<std::unique_ptr<Member>>& members, std::size_t own, int buffer,
                     std::int64_t two_steps_from_bytes) {
  PeerAddends peers;
  peers.num_peers = static_cast<int>(members.size());
  peers.own = static_cast<int>(own);
  for (std::size_t i = 0; i < members.size(); ++i) {
    peers.addends[i] = members[i]->addends[buffer].view.data;
    peers.sums[i] = members[i]->sums.view.data;
    peers.signals[i] = static_cast<std::uint32_t*>(members[i]->signals.view.data);
  }
  peers.epochs = static_cast<std::uint32_t*>(members[own]->epochs.view.data);
  peers.two_steps_from_bytes = two_steps_from_bytes;
  return peers;
}

/// Several sums one after another, with other addends each time, against one tensor that is their sum.
class Sums {
 public:
  Sums(int num_members, const Shape& shape) : shape_(shape) {
    for (int i = 0; i < num_members; ++i)
      members_.push_back(std::make_unique<Member>(shape));
  }

  /// Of round `round`: every member's x_out and normed must be the bytes that one tensor gives.
  void check(int round, std::int64_t two_steps_from_bytes) {
    const std::int64_t count = shape_.num_elements();
    const Floats x = random_values(count, static_cast<std::uint64_t>(1000 + round));
    Floats sum(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const Floats addend =
          members_[i]->testing.rounded(random_values(count, static_cast<std::uint64_t>(100 * round) + i));
      for (std::size_t j = 0; j < sum.size(); ++j)
        sum[j] += addend[j];
      put(*members_[i], members_[i]->addends[round % kBuffers].view, addend);
      put(*members_[i], members_[i]->x.view, x);
    }
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const PeerAddends peers = peers_of(members_, i, round % kBuffers, two_steps_from_bytes);
      add_norm(*members_[i], members_[i]->addends[round % kBuffers].view, &peers);
    }
    for (const auto& member : members_)
      wait_or_exit(member->testing);
    std::vector<std::pair<Floats, Floats>> results;
    for (const auto& member : members_)
      results.emplace_back(member->testing.get(member->x.view), member->testing.get(member->normed.view));
    // By a member that is done with this round.
    Member& first = *members_.front();
    put(first, first.addends[round % kBuffers].view, sum);
    put(first, first.x.view, x);
    add_norm(first, first.addends[round % kBuffers].view, nullptr);
    const std::pair expected(first.testing.get(first.x.view), first.testing.get(first.normed.view));
    for (const auto& result : results)
      CHECK(result == expected);
  }

 private:
  void put(Member& member, const TensorView& to, const Floats& values) {
    member.testing.ops().upload(to, {values.data(), DType::kF32, shape_}, member.testing.stream());
    member.testing.ops().synchronize(member.testing.stream());
  }

  void add_norm(Member& member, const TensorView& y, const PeerAddends* peers) {
    member.testing.ops().add_norm({y, peers, member.weight.view, member.x.view, member.x.view,
                                   member.weight.view, member.normed.view, 1e-6f},
                                  member.testing.stream());
  }

  Shape shape_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace

TEST_CASE("Every member of a sum gets the bytes that one tensor with the sum in it gives") {
  // A member that is alone waits for nobody: what the device loads with a kernel's first start it loads here.
  for (const std::int64_t two_steps_from_bytes : {kOneStep, std::int64_t{0}}) {
    for (const int num_members : {1, 2, 3, 4, 5, 8}) {
      for (const Shape& shape : {Shape{1, 72}, Shape{5, 3840}, Shape{11, 640}}) {
        CAPTURE(two_steps_from_bytes, num_members, shape.text());
        Sums sums(num_members, shape);
        for (int round = 0; round < 4; ++round)
          sums.check(round, two_steps_from_bytes);
      }
    }
  }
}

}  // namespace gemmad
