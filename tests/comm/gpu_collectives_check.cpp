// Run under mpirun, one rank a GPU: checks the groups over NCCL, called one by one and in recorded work.
// Every sum and byte must be exact. Exits with 1 on the first rank that finds something wrong.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/base/float_formats.h"
#include "tests/comm/gpu_ranks.h"
#include "tests/support/require.h"

namespace gemmad {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<std::uint8_t>;

constexpr std::int64_t kSizes[] = {1, 3, 257, 100'003, 3'000'000};

/// What `member` contributes to run `run`: bytes that tell of both and of their place.
Bytes bytes_of(int member, int run, std::int64_t size) {
  Bytes bytes(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::uint8_t>(i * 7 + static_cast<std::size_t>(member * 37 + run * 11 + 1));
  return bytes;
}

/// bytes_of() all members of a group of `size`, in the order of `ranks`.
Bytes gathered_bytes(const std::vector<int>& ranks, int run, std::int64_t size) {
  Bytes all;
  for (const int rank : ranks) {
    const Bytes part = bytes_of(rank, run, size);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

/// Whole numbers of T, F32 or the bits of BF16: factor * (i % 7).
template <typename T>
std::vector<T> whole_numbers(int factor, std::int64_t size) {
  std::vector<T> values(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<float>(factor * static_cast<int>(i % 7));
    if constexpr (std::is_same_v<T, float>) {
      values[i] = value;
    } else {
      values[i] = f32_to_bf16(value);
    }
  }
  return values;
}

/// 1 + .. + members: what whole_numbers() of all members, each with its number plus one, add up to. Up to 8
/// members all partial sums are below 256, so exact in BF16, whatever their order.
int sum_of_factors(const GpuRank& rank) {
  return rank.size() * (rank.size() + 1) / 2;
}

void check_broadcast_of_gpus(const GpuRank& rank, Collectives& group) {
  const Stream stream = rank.ops.stream();
  for (const std::int64_t size : kSizes) {
    GpuTensor tensor(rank.ops, DType::kU8, Shape{size});
    for (int root = 0; root < rank.size(); ++root) {
      tensor.set(bytes_of(rank.own(), root, size));
      group.broadcast(tensor.view(), root, stream);
      group.wait(stream);
      require(
          tensor.get<std::uint8_t>() == bytes_of(root, root, size),
          "a broadcast of " + std::to_string(size) + " bytes gives those of root " + std::to_string(root));
    }
  }
}

template <typename T>
void check_sums_of_gpus(const GpuRank& rank, Collectives& group, DType dtype) {
  const Stream stream = rank.ops.stream();
  for (const std::int64_t size : kSizes) {
    GpuTensor tensor(rank.ops, dtype, Shape{size});
    tensor.set(whole_numbers<T>(rank.own() + 1, size));
    group.all_reduce(tensor.view(), stream);
    group.wait(stream);
    require(tensor.get<T>() == whole_numbers<T>(sum_of_factors(rank), size),
            "the sum of " + std::to_string(size) + " " + std::string(name(dtype)) + " is exact");
  }
  group.all_reduce({nullptr, dtype, Shape{0}}, stream);
}

void check_gathering_of_gpus(const GpuRank& rank, Collectives& group) {
  const Stream stream = rank.ops.stream();
  for (const std::int64_t size : kSizes) {
    const Bytes expected = gathered_bytes(rank.ranks, 0, size);
    GpuTensor mine(rank.ops, DType::kU8, Shape{size});
    GpuTensor all(rank.ops, DType::kU8, Shape{rank.size() * size});
    mine.set(bytes_of(rank.own(), 0, size));
    group.all_gather(mine.view(), all.view(), stream);
    group.wait(stream);
    require(all.get<std::uint8_t>() == expected, "parts come member after member");

    all.set(Bytes(expected.size(), 0));
    const TensorView place{all.view().as<std::byte>() + rank.own() * size, DType::kU8, Shape{size}};
    rank.ops.upload(place, {bytes_of(rank.own(), 0, size).data(), DType::kU8, Shape{size}}, stream);
    group.all_gather(place, all.view(), stream);
    group.wait(stream);
    require(all.get<std::uint8_t>() == expected, "a part may be where it belongs already");
  }
}

/// Several on their way at once, as in a pipeline.
void check_chain_of_gpus(const GpuRank& rank, Collectives& group) {
  constexpr std::int64_t kSize = 40'003;
  constexpr int kRuns = 5;
  const Stream stream = rank.ops.stream();
  std::vector<GpuTensor> tensors;
  for (int run = 0; run < kRuns; ++run) {
    GpuTensor& tensor = tensors.emplace_back(rank.ops, DType::kU8, Shape{kSize});
    tensor.set(bytes_of(rank.own(), run, kSize));
    if (rank.own() > 0) group.receive(tensor.view(), rank.own() - 1, stream);
    if (rank.own() < rank.size() - 1) group.send(tensor.view(), rank.own() + 1, stream);
  }
  group.wait(stream);
  for (int run = 0; run < kRuns; ++run)
    require(tensors[static_cast<std::size_t>(run)].get<std::uint8_t>() == bytes_of(0, run, kSize),
            "run " + std::to_string(run) + " arrives as it was");
}

/// Everybody sends to the next and receives from the one before, which one after another would wait for
/// itself.
void put_ring(const GpuRank& rank, Collectives& group, const TensorView& mine, const TensorView& received) {
  const int n = rank.size();
  group.begin_group();
  group.send(mine, (rank.own() + 1) % n, rank.ops.stream());
  group.receive(received, (rank.own() + n - 1) % n, rank.ops.stream());
  group.end_group();
}

void check_calls_in_a_group(const GpuRank& rank, Collectives& group) {
  if (rank.size() < 2) return;
  const int before = (rank.own() + rank.size() - 1) % rank.size();
  const Stream stream = rank.ops.stream();
  for (const std::int64_t size : kSizes) {
    GpuTensor mine(rank.ops, DType::kU8, Shape{size});
    GpuTensor received(rank.ops, DType::kU8, Shape{size});
    mine.set(bytes_of(rank.own(), 0, size));
    put_ring(rank, group, mine.view(), received.view());
    group.wait(stream);
    require(received.get<std::uint8_t>() == bytes_of(before, 0, size), "a ring in a group goes round");

    GpuTensor sum(rank.ops, DType::kF32, Shape{size});
    sum.set(whole_numbers<float>(rank.own() + 1, size));
    group.begin_group();
    group.broadcast(mine.view(), 1, stream);
    group.all_reduce(sum.view(), stream);
    group.end_group();
    group.wait(stream);
    require(mine.get<std::uint8_t>() == bytes_of(1, 0, size), "a broadcast in a group");
    require(sum.get<float>() == whole_numbers<float>(sum_of_factors(rank), size), "a sum beside it is exact");
  }
}

/// All kinds of calls in one recording, repeated on other data each time.
void check_recorded_calls(const GpuRank& rank, Collectives& group) {
  constexpr std::int64_t kSize = 5003;
  constexpr int kRuns = 6;  // the first is called, the second recorded
  const int n = rank.size();
  const Stream stream = rank.ops.stream();
  GpuTensor sum(rank.ops, DType::kF32, Shape{kSize});
  GpuTensor wide_sum(rank.ops, DType::kBF16, Shape{kSize});
  GpuTensor mine(rank.ops, DType::kU8, Shape{kSize});
  GpuTensor all(rank.ops, DType::kU8, Shape{n * kSize});
  GpuTensor received(rank.ops, DType::kU8, Shape{kSize});
  GpuTensor from_last(rank.ops, DType::kU8, Shape{kSize});
  const auto recordings = rank.ops.make_recordings();
  for (int run = 0; run < kRuns; ++run) {
    const int sign = run % 2 == 0 ? 1 : -1;
    sum.set(whole_numbers<float>((rank.own() + 1) * (run + 1), kSize));
    wide_sum.set(whole_numbers<std::uint16_t>((rank.own() + 1) * sign, kSize));
    mine.set(bytes_of(rank.own(), run, kSize));
    from_last.set(bytes_of(rank.own(), run + 100, kSize));
    recordings->run(kSize, 0, stream, [&] {
      group.all_reduce(sum.view(), stream);
      group.all_gather(mine.view(), all.view(), stream);
      group.all_reduce(wide_sum.view(), stream);
      if (n > 1) put_ring(rank, group, mine.view(), received.view());
      group.broadcast(from_last.view(), n - 1, stream);
    });
    group.wait(stream);
    const std::string when = " in recorded work, run " + std::to_string(run);
    require(sum.get<float>() == whole_numbers<float>(sum_of_factors(rank) * (run + 1), kSize),
            "a sum of F32" + when);
    require(wide_sum.get<std::uint16_t>() == whole_numbers<std::uint16_t>(sum_of_factors(rank) * sign, kSize),
            "a sum of BF16" + when);
    require(all.get<std::uint8_t>() == gathered_bytes(rank.ranks, run, kSize), "a gathering" + when);
    require(n == 1 || received.get<std::uint8_t>() == bytes_of((rank.own() + n - 1) % n, run, kSize),
            "a ring" + when);
    require(from_last.get<std::uint8_t>() == bytes_of(n - 1, run + 100, kSize), "a broadcast" + when);
  }
}

/// Members are numbered in the order in which the group was made.
void check_order_of_members(const GpuRank& rank) {
  constexpr std::int64_t kSize = 1001;
  const std::vector<int> backwards(rank.ranks.rbegin(), rank.ranks.rend());
  const auto group = rank.transport.group(backwards, kGpuTimeout);
  const Stream stream = rank.ops.stream();
  GpuTensor mine(rank.ops, DType::kU8, Shape{kSize});
  GpuTensor all(rank.ops, DType::kU8, Shape{rank.size() * kSize});
  mine.set(bytes_of(rank.own(), 0, kSize));
  group->all_gather(mine.view(), all.view(), stream);
  group->broadcast(mine.view(), 0, stream);
  group->wait(stream);
  require(all.get<std::uint8_t>() == gathered_bytes(backwards, 0, kSize), "parts come in the group's order");
  require(mine.get<std::uint8_t>() == bytes_of(backwards.front(), 0, kSize),
          "a root is a member's number, not a rank's");
}

template <typename Error, typename Call>
bool is_refused(const Call& call) {
  try {
    call();
  } catch (const Error&) {
    return true;
  }
  return false;
}

void check_refusals(const GpuRank& rank, Collectives& group) {
  const Stream stream = rank.ops.stream();
  GpuTensor tensor(rank.ops, DType::kU8, Shape{64});
  const TensorView& view = tensor.view();
  for (const int member : {-1, rank.size()}) {
    require(is_refused<std::invalid_argument>([&] { group.broadcast(view, member, stream); }),
            "no such root");
    require(is_refused<std::invalid_argument>([&] { group.send(view, member, stream); }),
            "nobody to send to");
    require(is_refused<std::invalid_argument>([&] { group.receive(view, member, stream); }), "nobody sends");
  }
  require(is_refused<std::invalid_argument>([&] { group.all_reduce(view, stream); }), "bytes are not summed");
  const TensorView too_large{view.data, DType::kU8, Shape{64 * rank.size() + 1}};
  require(is_refused<std::invalid_argument>([&] { group.all_gather(view, too_large, stream); }),
          "a gathering fills its tensor");
}

/// The others stay away from a sum: rank 0 must miss them in time, by their names, and have its GPU back.
void check_missing_member(const GpuRank& rank) {
  using Clock = std::chrono::steady_clock;
  if (rank.size() < 2) return;
  constexpr milliseconds kTimeout{3'000};
  constexpr milliseconds kGrace{3'000};  // for the abort of the group, and a busy machine
  const Stream stream = rank.ops.stream();
  GpuTensor tensor(rank.ops, DType::kF32, Shape{1024});
  const auto group = rank.transport.group(rank.ranks, kTimeout);
  const auto put_sum = [&] { group->all_reduce(tensor.view(), stream); };
  put_sum();
  group->wait(stream);
  rank.bootstrap.all_gather({}, kGpuTimeout);
  if (rank.own() == 0) {
    const auto start = Clock::now();
    std::string text;
    try {
      put_sum();
      group->wait(stream);
    } catch (const BootstrapError& error) {
      text = error.what();
    }
    const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
    std::printf("missed after %d ms: %s\n", static_cast<int>(took.count()), text.c_str());
    std::string names = "ranks 0";
    for (int member = 1; member < rank.size(); ++member)
      names += ", " + std::to_string(member);
    require(text.find(names) != std::string::npos, "the ranks are named: " + text);
    require(text.find("not done within 3000 ms") != std::string::npos, "the deadline is named: " + text);
    require(took >= kTimeout && took < kTimeout + kGrace,
            "missed at the deadline, not after " + std::to_string(took.count()) + " ms");
    require(is_refused<BootstrapError>(put_sum), "an aborted group takes no more calls");
    require(is_refused<BootstrapError>([&] { group->wait(stream); }), "nor waits");
    rank.ops.synchronize(stream);
  }
  rank.bootstrap.all_gather({}, kGpuTimeout);
}

void check_all(const GpuRank& rank) {
  {
    const auto group = rank.transport.group(rank.ranks, kGpuTimeout);
    check_refusals(rank, *group);
    check_broadcast_of_gpus(rank, *group);
    check_sums_of_gpus<float>(rank, *group, DType::kF32);
    check_sums_of_gpus<std::uint16_t>(rank, *group, DType::kBF16);
    check_gathering_of_gpus(rank, *group);
    check_chain_of_gpus(rank, *group);
    check_calls_in_a_group(rank, *group);
    check_recorded_calls(rank, *group);
  }
  check_order_of_members(rank);
  check_missing_member(rank);
}

}  // namespace
}  // namespace gemmad

int main() {
  return gemmad::check_on_gpus(gemmad::check_all);
}
