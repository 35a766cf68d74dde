// Run under mpirun, one rank a GPU: what a sum over the GPUs takes with the residual add and both norms, us a
// call in recorded work: without a sum, over peer memory in one step and in two, and NCCL's all-reduce before
// the same kernel.
//
// peer_sum_bench [--columns N] [--rows LIST] [--rounds N]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/peer_memory.h"
#include "tests/bench/flags.h"
#include "tests/bench/prompt_lengths.h"
#include "tests/comm/gpu_ranks.h"

namespace gemmad {
namespace {

constexpr int kCalls = 96;  // of a recording, as a pass of 48 layers has
constexpr std::int64_t kOneStep = std::numeric_limits<std::int64_t>::max();

struct Options {
  std::int64_t columns = 3840;
  std::vector<std::int64_t> rows = {1, 16, 128, 256, 512, 1024, 2048};
  int rounds = 30;
};

Options parse_options(int argc, char** argv) {
  Options options;
  for_each_flag(argc, argv, [&](const std::string& flag, const std::string& value) {
    if (flag == "--columns") {
      options.columns = std::stoll(value);
    } else if (flag == "--rows") {
      options.rows = parse_numbers(value, ',');
    } else if (flag == "--rounds") {
      options.rounds = std::stoi(value);
    } else {
      throw std::invalid_argument("unknown option " + flag);
    }
  });
  return options;
}

/// Sums of one shape. Values do not matter: all are zeros, of which the sums are zeros.
class Sums {
 public:
  Sums(const GpuRank& rank, Collectives& group, const PeerSums& peers, const Shape& shape, int rounds)
      : rank_(rank), group_(group), peers_(peers), shape_(shape), rounds_(rounds) {
    const std::vector<std::uint16_t> zeros(static_cast<std::size_t>(shape.num_elements()));
    weight_.set(std::vector<std::uint16_t>(static_cast<std::size_t>(shape[1])));
    x_.set(zeros);
    branch_.set(zeros);
    for (int which : {0, 1})
      rank.ops.upload(peers.own(which, DType::kBF16, shape), {zeros.data(), DType::kBF16, shape},
                      rank.ops.stream());
  }

  double alone_us() {
    return median_us([&](int) { add_norm(branch_.view(), nullptr); });
  }
  double over_peers_us(std::int64_t two_steps_from_bytes) {
    return median_us([&](int call) {
      PeerAddends addends = peers_.addends(call % 2);
      addends.two_steps_from_bytes = two_steps_from_bytes;
      add_norm(peers_.own(call % 2, DType::kBF16, shape_), &addends);
    });
  }
  double over_nccl_us() {
    return median_us([&](int) {
      group_.all_reduce(branch_.view(), rank_.ops.stream());
      add_norm(branch_.view(), nullptr);
    });
  }

 private:
  void add_norm(ConstTensorView y, const PeerAddends* peers) {
    rank_.ops.add_norm(
        {y, peers, weight_.view(), x_.view(), x_.view(), weight_.view(), normed_.view(), 1e-6f},
        rank_.ops.stream());
  }

  double median_us(const std::function<void(int)>& put_call) {
    const auto recordings = rank_.ops.make_recordings();
    std::vector<double> times;
    for (int round = -3; round < rounds_; ++round) {
      rank_.bootstrap.all_gather({}, kGpuTimeout);  // so that the GPUs begin together
      const auto begin = std::chrono::steady_clock::now();
      recordings->run(0, 0, rank_.ops.stream(), [&] {
        for (int call = 0; call < kCalls; ++call)
          put_call(call);
      });
      group_.wait(rank_.ops.stream());
      const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - begin;
      if (round >= 0) times.push_back(us.count() / kCalls);
    }
    std::nth_element(times.begin(), times.begin() + rounds_ / 2, times.end());
    return times[static_cast<std::size_t>(rounds_ / 2)];
  }

  GpuTensor tensor(const Shape& shape) const { return {rank_.ops, DType::kBF16, shape}; }

  const GpuRank& rank_;
  Collectives& group_;
  const PeerSums& peers_;
  Shape shape_;
  int rounds_;
  GpuTensor weight_ = tensor(Shape{shape_[1]});
  GpuTensor x_ = tensor(shape_);
  GpuTensor branch_ = tensor(shape_);
  GpuTensor normed_ = tensor(shape_);
};

void time_all(const GpuRank& rank, const Options& options) {
  if (!peers_can_share(rank.bootstrap, rank.ranks, kGpuTimeout))
    throw Skipped("these GPUs cannot read each other's memory");
  const auto group = rank.transport.group(rank.ranks, kGpuTimeout);
  const auto most_bytes =
      static_cast<std::size_t>(std::ranges::max(options.rows) * options.columns) * size_bytes(DType::kBF16);
  PeerBuffers peers(rank.bootstrap, rank.ranks, most_bytes, kGpuTimeout);
  if (rank.own() == 0)
    std::printf("%8s %10s %10s %10s %10s\n", "rows", "no sum us", "one step", "two steps", "NCCL");
  for (const std::int64_t rows : options.rows) {
    Sums sums(rank, *group, peers, Shape{rows, options.columns}, options.rounds);
    const double times[] = {sums.alone_us(), sums.over_peers_us(kOneStep), sums.over_peers_us(0),
                            sums.over_nccl_us()};
    if (rank.own() == 0)
      std::printf("%8lld %10.2f %10.2f %10.2f %10.2f\n", static_cast<long long>(rows), times[0], times[1],
                  times[2], times[3]);
  }
  peers.close();
}

}  // namespace
}  // namespace gemmad

int main(int argc, char** argv) {
  gemmad::Options options;
  try {
    options = gemmad::parse_options(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "peer_sum_bench: %s\n", error.what());
    return 2;
  }
  return gemmad::check_on_gpus([&](const gemmad::GpuRank& rank) { gemmad::time_all(rank, options); });
}
