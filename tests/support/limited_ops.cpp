#include "tests/support/limited_ops.h"

#include <new>
#include <utility>

#include "kernels/cpu/cpu_ops.h"

namespace gemmad {
namespace {

class LimitedMemory final : public Memory {
 public:
  LimitedMemory(std::shared_ptr<Memory> memory, MemoryLimit& limit)
      : memory_(std::move(memory)), limit_(limit) {}

  void* allocate(std::size_t size_bytes) override {
    if (size_bytes > limit_.most_bytes || limit_.used_bytes > limit_.most_bytes - size_bytes)
      throw std::bad_alloc();
    void* data = memory_->allocate(size_bytes);
    limit_.used_bytes += size_bytes;
    return data;
  }
  void release(void* data, std::size_t size_bytes) noexcept override {
    limit_.used_bytes -= size_bytes;
    memory_->release(data, size_bytes);
  }

 private:
  std::shared_ptr<Memory> memory_;
  MemoryLimit& limit_;
};

class LimitedOps final : public Ops {
 public:
  explicit LimitedOps(MemoryLimit& limit)
      : ops_(make_cpu_ops(1)), memory_(std::make_shared<LimitedMemory>(ops_->memory(), limit)) {}

  std::string description() const override { return ops_->description(); }
  DType compute_dtype() const override { return ops_->compute_dtype(); }
  Stream stream() override { return ops_->stream(); }
  std::shared_ptr<Memory> memory() override { return memory_; }
  std::int64_t efficient_rows() const override { return ops_->efficient_rows(); }
  void synchronize(Stream stream) override { ops_->synchronize(stream); }
  Table make_table(ConstTensorView host, std::shared_ptr<const void> host_owner) override {
    return ops_->make_table(host, std::move(host_owner));
  }

 protected:
  void do_upload(TensorView dst, ConstMatrixView host_src, Stream stream) override {
    const Shape shape{host_src.rows, host_src.columns};
    ops_->upload_matrix({dst.data, dst.dtype, shape}, host_src, stream);
  }
  void do_copy_to_host(TensorView host_dst, ConstTensorView src, Stream stream) override {
    ops_->copy_to_host(host_dst, src, stream);
  }
  void do_embed(ConstTensorView ids, ConstTensorView table, float scale, TensorView out,
                Stream stream) override {
    ops_->embed(ids, table, scale, out, stream);
  }
  void do_rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView out,
                   Stream stream) override {
    ops_->rms_norm(x, weight, eps, out, stream);
  }
  void do_rms_norm_add(ConstTensorView y, ConstTensorView weight, float eps, TensorView x,
                       Stream stream) override {
    ops_->rms_norm_add(y, weight, eps, x, stream);
  }
  void do_gemm(ConstTensorView x, ConstMatrixView w, MatrixView y, Stream stream) override {
    ops_->gemm(x, w, y, stream);
  }
  void do_norm_rope(TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight,
                    ConstTensorView k_weight, float eps, ConstTensorView rope, ConstTensorView positions,
                    Stream stream) override {
    ops_->norm_rope(qkv, heads, q_weight, k_weight, eps, rope, positions, stream);
  }
  void do_attention(ConstTensorView qkv, std::span<const std::int64_t> offsets, const AttentionParams& params,
                    TensorView out, Stream stream) override {
    ops_->attention(qkv, offsets, params, out, stream);
  }
  void do_geglu(ConstTensorView gate_up, std::int64_t block, TensorView out, Stream stream) override {
    ops_->geglu(gate_up, block, out, stream);
  }

 private:
  std::unique_ptr<Ops> ops_;
  std::shared_ptr<LimitedMemory> memory_;
};

}  // namespace

std::unique_ptr<Ops> make_limited_ops(MemoryLimit& limit) {
  return std::make_unique<LimitedOps>(limit);
}

}  // namespace gemmad
