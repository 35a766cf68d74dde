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

class CpuOps final : public Ops {
 public:
  explicit CpuOps(int num_threads) : pool_(num_threads), attention_(pool_) {
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
  std::int64_t efficient_rows() const override { return 16; }
  void synchronize(Stream) override {}
  Table make_table(ConstTensorView host, std::shared_ptr<const void> host_owner) override {
    return {host, Buffer(), std::move(host_owner)};
  }

 protected:
  void do_upload(TensorView dst, ConstMatrixView host_src, Stream) override {
    cpu::convert(pool_, dst, host_src);
  }
  void do_copy_to_host(TensorView host_dst, ConstTensorView src, Stream) override {
    const std::int64_t count = src.shape.num_elements();
    cpu::convert(pool_, host_dst, {src.data, src.dtype, 1, count, count});
  }
  void do_embed(ConstTensorView ids, ConstTensorView table, float scale, TensorView out, Stream) override {
    cpu::embed(pool_, ids, table, scale, out);
  }
  void do_rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView out, Stream) override {
    cpu::rms_norm(pool_, x, weight, eps, out);
  }
  void do_rms_norm_add(ConstTensorView y, ConstTensorView weight, float eps, TensorView x, Stream) override {
    cpu::rms_norm_add(pool_, y, weight, eps, x);
  }
  void do_gemm(ConstTensorView x, ConstMatrixView w, MatrixView y, Stream) override {
    cpu::gemm(pool_, x, w, y);
  }
  void do_norm_rope(TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight,
                    ConstTensorView k_weight, float eps, ConstTensorView rope, ConstTensorView positions,
                    Stream) override {
    cpu::norm_rope(pool_, qkv, heads, q_weight, k_weight, eps, rope, positions);
  }
  void do_attention(ConstTensorView qkv, std::span<const std::int64_t> offsets, const AttentionParams& params,
                    TensorView out, Stream) override {
    attention_.run(qkv, offsets, params, out);
  }
  void do_geglu(ConstTensorView gate_up, std::int64_t block, TensorView out, Stream) override {
    cpu::geglu(pool_, gate_up, block, out);
  }

 private:
  std::shared_ptr<Memory> memory_ = std::make_shared<cpu::HostMemory>();
  cpu::ThreadPool pool_;
  cpu::Attention attention_;
};

}  // namespace

std::unique_ptr<Ops> make_cpu_ops(int num_threads) {
  if (num_threads < 1 || num_threads > kMaxThreads) {
    throw std::invalid_argument("CPU threads: " + std::to_string(num_threads) + ", must be in [1, " +
                                std::to_string(kMaxThreads) + "]");
  }
  return std::make_unique<CpuOps>(num_threads);
}

}  // namespace gemmad
