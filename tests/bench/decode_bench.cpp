// How fast what generation is made of runs on a GPU: products of few rows, attention over a cache, and the
// attention of images and of LTX-2's connectors. Each is recorded many times in a row, on operands that the
// cache does not hold.
//
// decode_bench [ROUNDS]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/base/float_formats.h"
#include "kernels/cuda/cuda_ops.h"

namespace gemmad {
namespace {

constexpr std::int64_t kHidden = 3840;  // of Gemma 3 12B
constexpr std::int64_t kFfn = 15360;
constexpr HeadLayout kHeads{16, 8, 256};
constexpr std::int64_t kVocabulary = 262144;
constexpr std::size_t kCacheBytes = std::size_t{300} << 20;  // what goes through until a matrix comes again

struct Tensor {
  Buffer buffer;
  TensorView view;
};

class Bench {
 public:
  explicit Bench(int rounds) : ops_(make_cuda_ops({0, 4, {}})), rounds_(rounds) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> values(std::size_t{1} << 20);
    for (std::uint16_t& value : values)
      value = f32_to_bf16(normal(random));
    const Shape shape{static_cast<std::int64_t>(values.size())};
    values_ = empty(shape, DType::kBF16);
    ops_->upload(values_.view, {values.data(), DType::kBF16, shape}, ops_->stream());
  }

  void products() {
    std::printf("%-44s %9s %9s\n", "product, us and GB/s of weights", "us", "GB/s");
    for (const std::int64_t rows : {1, 2, 4, 8}) {
      product("qkv", rows, kHeads.qkv_width(), kHidden, 0);
      product("o", rows, kHidden, kHeads.q_width(), 0);
      product("gate_up", rows, 2 * kFfn, kHidden, 64);
      product("down", rows, kHidden, kFfn, 0);
      product("head", rows, kVocabulary, kHidden, 0);
    }
  }

  void cached_attention() {
    for (const std::int64_t rows : {1, 8}) {
      for (const std::int64_t keys : {128, 1024, 2048, 4096})
        cached("one row each", rows, keys, false);
    }
    for (const std::int64_t rows : {16, 128, 300})
      cached("chunk", rows, 1000 + rows, true);
    cached("chunk", 128, 4096, true);
  }

  void whole_attention() {
    whole("an image", 1, 4096, 16, 128);
    whole("an image", 1, 4096, 16, 64);
    whole("connectors", 1, 1024, 32, 128);
    whole("connectors", 2, 1024, 32, 128);
    whole("connectors", 2, 1024, 30, 128);
    whole("connectors", 2, 1024, 32, 64);
  }

  /// The small operations around, a row each.
  void small_operations() {
    const Tensor x = random({8, kHidden}), out = random({8, kHidden}), weight = random({kHidden});
    const Tensor image = random({4096, 1152}), scale = random({1152}), pooled = random({256, 1152});
    const Stream stream = ops_->stream();
    const auto print = [&](const char* name, double us) { std::printf("%-44s %9.2f us\n", name, us); };
    print("rms_norm, 1 x 3840", microseconds(100, [&](std::size_t) {
            ops_->rms_norm({x.view.data, DType::kBF16, {1, kHidden}}, weight.view, 1e-6f,
                           {out.view.data, DType::kBF16, {1, kHidden}}, stream);
          }));
    print("layer_norm, 4096 x 1152", microseconds(20, [&](std::size_t) {
            ops_->layer_norm(image.view, scale.view, scale.view, 1e-6f, image.view, stream);
          }));
    print("pool_squares, 64 x 64 by 4",
          microseconds(20, [&](std::size_t) { ops_->pool_squares(image.view, 4, pooled.view, stream); }));
  }

 private:
  Tensor empty(const Shape& shape, DType dtype) {
    Buffer buffer(ops_->memory(), TensorView{nullptr, dtype, shape}.size_bytes());
    const TensorView view = buffer.view(dtype, shape);
    return {std::move(buffer), view};
  }
  Tensor random(const Shape& shape) {
    Tensor tensor = empty(shape, DType::kBF16);
    const std::int64_t total = shape.num_elements(), most = values_.view.shape[0];
    for (std::int64_t begin = 0; begin < total; begin += most) {
      const Shape part{std::min(most, total - begin)};
      ops_->copy({tensor.view.as<std::uint16_t>() + begin, DType::kBF16, part},
                 {values_.view.data, DType::kBF16, part}, ops_->stream());
    }
    return tensor;
  }
  Tensor numbers(const std::vector<std::int32_t>& values) {
    const Shape shape{static_cast<std::int64_t>(values.size())};
    Tensor tensor = empty(shape, DType::kI32);
    ops_->upload(tensor.view, {values.data(), DType::kI32, shape}, ops_->stream());
    return tensor;
  }

  /// Of one call of `operation`(its number), of `count` in a row; the median of all rounds.
  double microseconds(std::size_t count, const std::function<void(std::size_t)>& operation) {
    const auto recordings = ops_->make_recordings();
    const auto all = [&] {
      for (std::size_t i = 0; i < count; ++i)
        operation(i);
    };
    std::vector<double> times;
    for (int round = -3; round < rounds_; ++round) {
      ops_->synchronize(ops_->stream());
      const auto begin = std::chrono::steady_clock::now();
      recordings->run(0, 0, ops_->stream(), all);
      ops_->synchronize(ops_->stream());
      const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - begin;
      if (round >= 0) times.push_back(us.count());
    }
    std::nth_element(times.begin(), times.begin() + rounds_ / 2, times.end());
    return times[static_cast<std::size_t>(rounds_ / 2)] / static_cast<double>(count);
  }

  void product(const std::string& name, std::int64_t rows, std::int64_t outputs, std::int64_t inputs,
               std::int64_t block) {
    const std::size_t bytes = static_cast<std::size_t>(outputs * inputs) * 2;
    std::vector<Tensor> weights;
    for (std::size_t all = 0; weights.size() < 2 || all < kCacheBytes; all += bytes)
      weights.push_back(random({outputs, inputs}));
    const Tensor x = random({rows, inputs}), y = random({rows, outputs});
    const Tensor out = random({rows, std::max<std::int64_t>(outputs / 2, 1)});
    const double us = microseconds(4 * weights.size(), [&](std::size_t i) {
      const ConstMatrixView w = weights[i % weights.size()].view;
      if (block > 0)
        ops_->gemm_geglu(x.view, w, block, y.view, out.view, ops_->stream());
      else
        ops_->gemm(x.view, w, y.view, ops_->stream());
    });
    const std::string sizes = name + ", " + std::to_string(rows) + " x " + std::to_string(inputs) + " by " +
                              std::to_string(outputs);
    std::printf("%-44s %9.2f %9.0f\n", sizes.c_str(), us, static_cast<double>(bytes) / us * 1e-3);
  }

  /// Rows that see `keys` keys each.
  void cached(const char* name, std::int64_t rows, std::int64_t keys, bool is_chunk) {
    constexpr std::int64_t kPositions = 4096;
    const std::int64_t slots = is_chunk ? 1 : rows;
    std::vector<std::int32_t> slot, position, end;
    for (std::int64_t n = 0; n < rows; ++n) {
      slot.push_back(static_cast<std::int32_t>(is_chunk ? 0 : n));
      position.push_back(static_cast<std::int32_t>(is_chunk ? keys - rows + n : keys - 1));
      end.push_back(position.back() + 1);
    }
    const Tensor of_slots = numbers(slot), of_positions = numbers(position), of_ends = numbers(end);
    std::vector<Tensor> caches;
    for (int i = 0; i < 8; ++i)
      caches.push_back(random({slots, kPositions, 2 * kHeads.kv_width()}));
    const Tensor qkv = random({rows, kHeads.qkv_width()});
    const Tensor out = empty({rows, kHeads.q_width()}, DType::kBF16);
    const CacheRows what{of_slots.view, of_positions.view, of_ends.view, is_chunk};
    const double us = microseconds(48, [&](std::size_t i) {
      ops_->attention_cached(qkv.view, what, caches[i % caches.size()].view, {kHeads, 1.0f / 16, 0}, out.view,
                             ops_->stream());
    });
    const double bytes = static_cast<double>(slots * keys * 4 * kHeads.kv_width());
    std::printf("attention_cached, %s: %4lld rows, %4lld keys %9.2f us %9.0f GB/s of keys and values\n", name,
                static_cast<long long>(rows), static_cast<long long>(keys), us, bytes / us * 1e-3);
  }

  /// Rows that see all of their sequence.
  void whole(const char* name, std::int64_t sequences, std::int64_t length, std::int64_t num_heads,
             std::int64_t head_dim) {
    const HeadLayout heads{num_heads, num_heads, head_dim};
    const std::int64_t rows = sequences * length;
    std::vector<std::int32_t> begin, end;
    for (std::int64_t n = 0; n < rows; ++n) {
      begin.push_back(static_cast<std::int32_t>(n / length * length));
      end.push_back(static_cast<std::int32_t>(begin.back() + length));
    }
    const Tensor qkv = random({rows, heads.qkv_width()});
    const Tensor out = empty({rows, heads.q_width()}, DType::kBF16);
    const Tensor begins = numbers(begin), ends = numbers(end);
    const double us = microseconds(10, [&](std::size_t) {
      ops_->attention(qkv.view, {begins.view, ends.view}, {heads, 0.1f, 0}, out.view, ops_->stream());
    });
    const double flops = 4.0 * static_cast<double>(rows * length * heads.q_width());
    std::printf("attention of %s, %lld x %4lld rows, %lld x %3lld: %9.1f us %9.1f TFLOP/s\n", name,
                static_cast<long long>(sequences), static_cast<long long>(length),
                static_cast<long long>(num_heads), static_cast<long long>(head_dim), us, flops / us * 1e-6);
  }

  std::unique_ptr<Ops> ops_;
  int rounds_;
  Tensor values_;
};

}  // namespace
}  // namespace gemmad

int main(int argc, char** argv) {
  try {
    const int rounds = argc > 1 ? std::stoi(argv[1]) : 20;
    if (rounds < 1) throw std::invalid_argument("at least one round");
    gemmad::Bench bench(rounds);
    bench.products();
    bench.cached_attention();
    bench.whole_attention();
    bench.small_operations();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "decode_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
