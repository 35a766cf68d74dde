#include "kernels/cpu/cpu_ops.h"

#include <stdexcept>
#include <utility>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/host_memory.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/thread_pool.h"

namespace gemmad {
namespace {

constexpr int kMaxThreads = 1024;

// Telling this device what to do costs nothing.
class NoRecordings final : public Recordings {
 public:
  void run(std::int64_t, std::int64_t, Stream, const std::function<void()>& body) override { body(); }
};

class CpuOps final : public Ops {
 public:
  CpuOps(int num_threads, std::shared_ptr<Memory> memory)
      : memory_(memory ? std::move(memory) : std::make_shared<cpu::HostMemory>()),
        pool_(num_threads),
        attention_(pool_),
        cached_attention_(pool_),
        unembed_(pool_),
        linear_(pool_) {
    cpu::prepare_gemm();
    pool_.run(pool_.num_threads(), [](std::int64_t, int) { cpu::warm_up_gemm(); });
  }

  std::string description() const override {
    return "CPU, fp32, " + cpu::gemm_description() + ", " + std::to_string(pool_.num_threads()) +
           (pool_.num_threads() == 1 ? " thread" : " threads");
  }
  DType compute_dtype() const override { return DType::kF32; }
  Stream stream() override { return Stream(static_cast<void*>(&pool_)); }
  std::shared_ptr<Memory> memory() override { return memory_; }
  std::optional<DeviceMemoryBytes> memory_bytes() const override { return std::nullopt; }

  std::uint64_t scratch_bytes() const override { return 0; }
  void drop_scratch() override {}

  Stream side_stream(std::size_t) override { return stream(); }
  using Device::wait_for;
  void wait_for(Stream, Stream) override {}
  void set_mark(std::size_t, Stream) override {}
  void wait_for_mark(Stream, std::size_t) override {}
  bool is_done(Stream) override { return true; }
  void synchronize(Stream) override {}
  std::unique_ptr<Recordings> make_recordings() override { return std::make_unique<NoRecordings>(); }
  bool records_work() const override { return false; }
  std::shared_ptr<void> pin(std::span<std::byte>) override { return nullptr; }
  std::int64_t padded_rows(std::int64_t rows) const override { return rows; }
  std::int64_t efficient_rows() const override { return 16; }

  void tune_gemm(ConstTensorView, std::span<const ConstMatrixView>, MatrixView, std::int64_t) override {}
  void load_tuning() override {}
  std::optional<std::string> save_tuning() override { return std::nullopt; }
  Table make_table(ConstTensorView host, std::shared_ptr<const void> host_owner) override {
    return {host, Buffer(), std::move(host_owner)};
  }

 protected:
  void do_upload(TensorView dst, std::span<const ConstMatrixView> host_parts, Stream) override {
    auto* to = dst.as<std::byte>();
    for (const ConstMatrixView& part : host_parts) {
      const TensorView rows{to, dst.dtype, {part.rows, part.columns}};
      cpu::convert(pool_, rows, part);
      to += rows.size_bytes();
    }
  }
  void do_copy_to_host(TensorView host_dst, ConstTensorView src, Stream) override {
    convert_all(host_dst, src);
  }
  void do_embed(ConstTensorView ids, ConstTensorView table, float scale, TensorView out, Stream) override {
    cpu::embed(pool_, ids, table, scale, out);
  }
  void do_rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView out, Stream) override {
    cpu::rms_norm(pool_, x, weight, eps, out);
  }
  void do_add_norm(const AddNorm& args, Stream) override {
    if (args.peers != nullptr) throw OpError("add_norm: peers, but the CPU reads no other device's memory");
    cpu::add_norm(pool_, args);
  }
  void do_gemm(ConstTensorView x, ConstMatrixView w, MatrixView y, Stream) override {
    cpu::gemm(pool_, x, w, y);
  }
  void do_gemm_geglu(ConstTensorView x, ConstMatrixView gate_up, std::int64_t block, TensorView scratch,
                     TensorView out, Stream) override {
    cpu::gemm(pool_, x, gate_up, scratch);
    cpu::geglu(pool_, scratch, block, out);
  }
  void do_norm_rope(TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight,
                    ConstTensorView k_weight, float eps, ConstTensorView rope, ConstTensorView positions,
                    Stream) override {
    cpu::norm_rope(pool_, qkv, heads, q_weight, k_weight, eps, rope, positions);
  }
  void do_attention(ConstTensorView qkv, const AttentionSpans& spans, const AttentionParams& params,
                    TensorView out, Stream) override {
    attention_.run(qkv, spans, params, out);
  }
  void do_geglu(ConstTensorView gate_up, std::int64_t block, TensorView out, Stream) override {
    cpu::geglu(pool_, gate_up, block, out);
  }
  void do_store_kv(ConstTensorView qkv, const HeadLayout& heads, const CacheRows& rows, TensorView cache,
                   Stream) override {
    cpu::store_kv(pool_, qkv, heads, rows, cache);
  }
  void do_attention_cached(ConstTensorView qkv, const CacheRows& rows, ConstTensorView cache,
                           const AttentionParams& params, TensorView out, Stream) override {
    cached_attention_.run(qkv, rows, cache, params, out);
  }
  void do_unembed(ConstTensorView x, ConstTensorView table, TensorView out, Stream) override {
    unembed_.run(x, table, out);
  }
  void do_copy(TensorView dst, ConstTensorView src, Stream) override { convert_all(dst, src); }
  void do_layer_norm(ConstTensorView x, ConstTensorView weight, ConstTensorView bias, float eps,
                     TensorView out, Stream) override {
    cpu::layer_norm(pool_, x, weight, bias, eps, out);
  }
  void do_pool_squares(ConstTensorView x, std::int64_t k, TensorView out, Stream) override {
    cpu::pool_squares(pool_, x, k, out);
  }
  void do_linear(const Linear& args, Stream) override { linear_.run(args); }
  void do_gemm_sums(ConstTensorView x, ConstTensorView w, bool adds, TensorView sums, Stream) override {
    cpu::gemm_sums(pool_, x, w, adds, sums);
  }
  void do_add_bias(ConstTensorView sums, ConstTensorView bias, TensorView out, Stream) override {
    cpu::add_bias(pool_, sums, bias, out);
  }
  void do_rms_rows(ConstTensorView x, ConstTensorView rows, float factor, float eps, TensorView out,
                   Stream) override {
    cpu::rms_rows(pool_, x, rows, factor, eps, out);
  }
  void do_range_rows(ConstTensorView x, ConstTensorView rows, ConstTensorView bounds, float eps,
                     TensorView scratch, TensorView out, Stream) override {
    cpu::range_rows(pool_, x, rows, bounds, eps, scratch, out);
  }
  void do_fill_registers(ConstTensorView features, ConstTensorView bounds, ConstTensorView registers,
                         TensorView out, Stream) override {
    cpu::fill_registers(pool_, features, bounds, registers, out);
  }
  void do_norm_rope_across(TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight,
                           ConstTensorView k_weight, float eps, ConstTensorView rope, RopePairs pairs,
                           Stream) override {
    cpu::norm_rope_across(pool_, qkv, heads, q_weight, k_weight, eps, rope, pairs);
  }
  void do_gate_heads(TensorView x, ConstTensorView logits, Stream) override {
    cpu::gate_heads(pool_, x, logits);
  }

 private:
  void convert_all(TensorView dst, ConstTensorView src) {
    const std::int64_t count = src.shape.num_elements();
    cpu::convert(pool_, dst, {src.data, src.dtype, 1, count, count});
  }

  std::shared_ptr<Memory> memory_;
  cpu::ThreadPool pool_;
  cpu::Attention attention_;
  cpu::CachedAttention cached_attention_;
  cpu::Unembed unembed_;
  cpu::Linear linear_;
};

}  // namespace

std::unique_ptr<Ops> make_cpu_ops(int num_threads, std::shared_ptr<Memory> memory) {
  if (num_threads < 1 || num_threads > kMaxThreads) {
    throw std::invalid_argument("CPU threads: " + std::to_string(num_threads) + ", must be in [1, " +
                                std::to_string(kMaxThreads) + "]");
  }
  return std::make_unique<CpuOps>(num_threads, std::move(memory));
}

}  // namespace gemmad
