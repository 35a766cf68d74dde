// Run under mpirun, one rank a GPU: checks the sums that GPUs make by reading each other's memory
// (PeerAddends through Ops::add_norm) against a reference in double, buffers in turn, on other data each
// time, called one by one and in recorded work. Exits with 1 on the first rank that finds something wrong.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/peer_memory.h"
#include "kernels/base/float_formats.h"
#include "tests/comm/gpu_ranks.h"
#include "tests/support/require.h"

namespace gemmad {
namespace {

using Bf16s = std::vector<std::uint16_t>;

constexpr float kEps = 1e-6f;
constexpr std::int64_t kAllRows[] = {1, 3, 17, 128, 700};
constexpr std::int64_t kAllColumns[] = {72, 640, 3840};
constexpr int kTokens = 31;          // different rows of the inputs
constexpr int kRounds = 10;          // sums of a pass, each in the other buffer than the last one
constexpr int kCalledPasses = 2;     // put on the stream call by call
constexpr int kRecordedPasses = 10;  // the first is called, the second recorded: 100 rounds in all
// The members that tables belong to, beside the ranks.
constexpr int kX = 100;
constexpr int kWeight = 101;
constexpr int kNextWeight = 102;

std::uint32_t mix(std::uint32_t h) {
  h ^= h >> 16;
  h *= 0x7feb352du;
  h ^= h >> 15;
  h *= 0x846ca68bu;
  return h ^ (h >> 16);
}

/// `count` values of `member`, from -scale to scale; the same on every rank.
Bf16s values_of(int member, std::int64_t count, float scale) {
  Bf16s values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t h =
        mix(mix(static_cast<std::uint32_t>(i)) + static_cast<std::uint32_t>(member + 1) * 977);
    values[i] = f32_to_bf16((static_cast<float>(h >> 8) * 0x1p-23f - 1.0f) * scale);
  }
  return values;
}

double rounded(double value) {
  return bf16_to_f32(f32_to_bf16(static_cast<float>(value)));
}

double inverse_rms(double squares, std::int64_t columns) {
  return 1 / std::sqrt(squares / static_cast<double>(columns) + kEps);
}

/// What add_norm makes of the inputs, rounded where kernels/ops.h says, and how far from it a result may be:
/// a sum that falls next to the middle between two values of bf16 may be rounded to either.
class Reference {
 public:
  Reference(int num_ranks, std::int64_t columns)
      : columns_(columns),
        next_weight_(values_of(kNextWeight, columns, 0.5f)),
        x_out_(static_cast<std::size_t>(kTokens * columns)),
        allowed_(x_out_.size()) {
    const Bf16s weight = values_of(kWeight, columns, 0.5f);
    const Bf16s x = values_of(kX, kTokens * columns, 2);
    const std::vector<double> y = sum(num_ranks);
    for (std::size_t first = 0; first < y.size(); first += weight.size()) {
      double squares = 0;
      for (std::size_t i = 0; i < weight.size(); ++i)
        squares += y[first + i] * y[first + i];
      const double factor = inverse_rms(squares, columns);
      for (std::size_t i = 0; i < weight.size(); ++i) {
        const double branch = rounded(y[first + i] * factor * (1 + bf16_to_f32(weight[i])));
        x_out_[first + i] = rounded(bf16_to_f32(x[first + i]) + branch);
        allowed_[first + i] = kUnit * (std::abs(branch) + std::abs(x_out_[first + i])) + kTiny;
      }
    }
  }

  /// Throws unless the row that `token` stands for has become `x_out` and `normed`.
  void check_row(std::int32_t token, const std::uint16_t* x_out, const std::uint16_t* normed) {
    const double* const want = x_out_.data() + token * columns_;
    const double* const allowed = allowed_.data() + token * columns_;
    double squares = 0;
    for (std::int64_t i = 0; i < columns_; ++i) {
      const double got = bf16_to_f32(x_out[i]);
      see("x_out", i, got, want[i], allowed[i]);
      squares += got * got;
    }
    // The second norm is that of what was rounded.
    const double factor = inverse_rms(squares, columns_);
    for (std::int64_t i = 0; i < columns_; ++i) {
      const double weight = bf16_to_f32(next_weight_[static_cast<std::size_t>(i)]);
      const double wanted = rounded(bf16_to_f32(x_out[i]) * factor * (1 + weight));
      see("normed", i, bf16_to_f32(normed[i]), wanted, kUnit * std::abs(wanted) + kTiny);
    }
  }

  /// Throws when more elements than a few were rounded another way: a rounding that is left out, or made
  /// elsewhere, changes 6 in 100 or more.
  void check_roundings() const {
    require(100 * num_other_ <= num_seen_, std::to_string(num_other_) + " of " + std::to_string(num_seen_) +
                                               " elements are not the nearest to the reference");
  }

 private:
  static constexpr double kUnit = 0x1p-7;  // from one value of bf16 to the next, of the value, at most
  static constexpr double kTiny = 1e-6;

  /// Of all ranks' addends, in fp32, in their order, rounded once: to the bit.
  std::vector<double> sum(int num_ranks) const {
    std::vector<float> sums(x_out_.size(), 0.0f);
    for (int member = 0; member < num_ranks; ++member) {
      const Bf16s addend = values_of(member, kTokens * columns_, 2);
      for (std::size_t i = 0; i < sums.size(); ++i)
        sums[i] += bf16_to_f32(addend[i]);
    }
    std::vector<double> result(sums.size());
    std::transform(sums.begin(), sums.end(), result.begin(), [](float value) { return rounded(value); });
    return result;
  }

  void see(const char* what, std::int64_t column, double got, double want, double allowed) {
    ++num_seen_;
    if (got == want) return;
    ++num_other_;
    if (std::abs(got - want) <= allowed) return;
    throw std::runtime_error(std::string(what) + " is " + std::to_string(got) + " in column " +
                             std::to_string(column) + ", must be " + std::to_string(want));
  }

  std::int64_t columns_;
  Bf16s next_weight_;
  std::vector<double> x_out_;    // [kTokens, D]
  std::vector<double> allowed_;  // [kTokens, D]
  std::int64_t num_seen_ = 0;
  std::int64_t num_other_ = 0;
};

/// Ends all ranks when the work on the stream is not done in time: a kernel that waits for another GPU has no
/// deadline, and to give memory back would wait for it.
void wait_or_abort(const GpuRank& rank, Collectives& watch) {
  try {
    watch.wait(rank.ops.stream());
  } catch (const BootstrapError& error) {
    std::fprintf(stderr, "rank %d: sums over peers: %s\n", rank.own(), error.what());
    rank.bootstrap.abort(1);
  }
}

/// Up to 300 us in half of the cases, so that another rank is the last one each time.
void dawdle(const GpuRank& rank, std::uint32_t round) {
  const std::uint32_t h = mix(round * 8 + static_cast<std::uint32_t>(rank.own()) + 77);
  if (h % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(h / 2 % 300));
}

/// Sums of one shape. A row of every rank's addend, and of x, is that of a token, which changes from row to
/// row and from round to round; embed() writes it, as the kernel before a sum does.
class SumCheck {
 public:
  SumCheck(const GpuRank& rank, Collectives& watch, const PeerSums& sums, Reference& reference,
           std::int64_t two_steps_from_bytes, const Shape& shape)
      : rank_(rank),
        watch_(watch),
        sums_(sums),
        reference_(reference),
        two_steps_from_bytes_(two_steps_from_bytes),
        shape_(shape) {
    addends_.set(values_of(rank.own(), kTokens * shape[1], 2));
    x_table_.set(values_of(kX, kTokens * shape[1], 2));
    weight_.set(values_of(kWeight, shape[1], 0.5f));
    next_weight_.set(values_of(kNextWeight, shape[1], 0.5f));
  }

  void check() {
    for (int pass = 0; pass < kCalledPasses; ++pass) {
      const std::vector<std::int32_t> tokens = put_tokens();
      for (int round = 0; round < kRounds; ++round) {
        dawdle(rank_, num_passes_ * kRounds + static_cast<std::uint32_t>(round));
        put_round(round);
      }
      check_pass(tokens);
    }
    const auto recordings = rank_.ops.make_recordings();
    for (int pass = 0; pass < kRecordedPasses; ++pass) {
      const std::vector<std::int32_t> tokens = put_tokens();
      dawdle(rank_, num_passes_);
      recordings->run(shape_[0], 0, rank_.ops.stream(), [&] {
        for (int round = 0; round < kRounds; ++round)
          put_round(round);
      });
      check_pass(tokens);
    }
    check_same_on_all();
  }

 private:
  std::vector<std::int32_t> put_tokens() {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(kRounds * shape_[0]));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::uint32_t h = mix(mix(static_cast<std::uint32_t>(i)) + num_passes_);
      tokens[i] = static_cast<std::int32_t>(h % kTokens);
    }
    tokens_.set(tokens);
    ++num_passes_;
    return tokens;
  }

  void put_round(int round) {
    const Stream stream = rank_.ops.stream();
    const ConstTensorView tokens{tokens_.view().as<std::int32_t>() + round * shape_[0], DType::kI32,
                                 Shape{shape_[0]}};
    const TensorView own = sums_.own(round % 2, DType::kBF16, shape_);
    PeerAddends peers = sums_.addends(round % 2);
    peers.two_steps_from_bytes = two_steps_from_bytes_;
    const TensorView x_out = of_round(x_out_, round);
    // As in a model, where x becomes x_out, in every other round.
    const TensorView x = round % 4 < 2 ? x_out : x_.view();
    rank_.ops.embed(tokens, x_table_.view(), 1, x, stream);
    rank_.ops.embed(tokens, addends_.view(), 1, own, stream);
    rank_.ops.add_norm(
        {own, &peers, weight_.view(), x, x_out, next_weight_.view(), of_round(normed_, round), kEps}, stream);
  }

  TensorView of_round(const GpuTensor& all, int round) const {
    return {all.view().as<std::uint16_t>() + round * shape_.num_elements(), DType::kBF16, shape_};
  }

  void check_pass(const std::vector<std::int32_t>& tokens) {
    wait_or_abort(rank_, watch_);
    const Bf16s x_out = x_out_.get<std::uint16_t>();
    const Bf16s normed = normed_.get<std::uint16_t>();
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      const std::size_t first = row * static_cast<std::size_t>(shape_[1]);
      reference_.check_row(tokens[row], x_out.data() + first, normed.data() + first);
    }
    for (const Bf16s* bytes : {&x_out, &normed}) {
      const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size() * 2);
      hash_ = hash_ * 31 + std::hash<std::string_view>{}(text);
    }
  }

  void check_same_on_all() {
    const std::vector<std::byte> all =
        rank_.bootstrap.all_gather(std::as_bytes(std::span(&hash_, 1)), kGpuTimeout);
    for (std::size_t i = 0; i < all.size(); i += sizeof hash_)
      require(std::memcmp(all.data() + i, &hash_, sizeof hash_) == 0,
              "the results are the same bytes on all ranks");
  }

  GpuTensor tensor(const Shape& shape) const { return {rank_.ops, DType::kBF16, shape}; }

  const GpuRank& rank_;
  Collectives& watch_;
  const PeerSums& sums_;
  Reference& reference_;
  std::int64_t two_steps_from_bytes_;
  Shape shape_;
  std::uint32_t num_passes_ = 0;
  std::size_t hash_ = 0;  // of all results so far
  GpuTensor addends_ = tensor(Shape{kTokens, shape_[1]});
  GpuTensor x_table_ = tensor(Shape{kTokens, shape_[1]});
  GpuTensor weight_ = tensor(Shape{shape_[1]});
  GpuTensor next_weight_ = tensor(Shape{shape_[1]});
  GpuTensor tokens_{rank_.ops, DType::kI32, Shape{kRounds * shape_[0]}};
  GpuTensor x_ = tensor(shape_);
  GpuTensor x_out_ = tensor(Shape{kRounds, shape_[0], shape_[1]});
  GpuTensor normed_ = tensor(Shape{kRounds, shape_[0], shape_[1]});
};

void check_all(const GpuRank& rank) {
  if (!peers_can_share(rank.bootstrap, rank.ranks, kGpuTimeout))
    throw Skipped("these GPUs cannot read each other's memory");
  const auto watch = rank.transport.group(rank.ranks, kGpuTimeout);
  const std::int64_t largest = std::ranges::max(kAllRows) * std::ranges::max(kAllColumns);
  PeerBuffers buffers(rank.bootstrap, rank.ranks, static_cast<std::size_t>(largest) * 2, kGpuTimeout);
  for (const std::int64_t columns : kAllColumns) {
    Reference reference(rank.size(), columns);
    for (const std::int64_t rows : kAllRows) {
      for (const std::int64_t two_steps_from_bytes :
           {std::numeric_limits<std::int64_t>::max(), std::int64_t{0}}) {
        const Shape shape{rows, columns};
        try {
          SumCheck(rank, *watch, buffers, reference, two_steps_from_bytes, shape).check();
        } catch (const std::exception& error) {
          throw std::runtime_error("sums of " + shape.text() +
                                   (two_steps_from_bytes == 0 ? " in two steps: " : ": ") + error.what());
        }
      }
    }
    reference.check_roundings();
  }
  buffers.close();
}

}  // namespace
}  // namespace gemmad

int main() {
  return gemmad::check_on_gpus(gemmad::check_all);
}
