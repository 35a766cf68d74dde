#include "kernels/cuda/cuda_ops.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels/cuda/add_norm.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/marks.h"
#include "kernels/cuda/recordings.h"
#include "kernels/cuda/staging.h"

namespace gemmad {
namespace {

using cuda::check_cuda;

constexpr std::size_t kRecordedShapes = 16;
constexpr std::int64_t kEfficientRows = 128;

/// Heads of these sizes are fast.
constexpr std::array<std::int64_t, 4> kHeadDims{64, 128, 256, 512};

/// Up to `most` rows, batches are filled up to a multiple of `step`.
struct Padding {
  std::int64_t most;
  std::int64_t step;
};
// Products of few rows cost as much as of more; of many, in proportion. So the steps grow, but stay under an
// eighth of the rows from 128 on.
constexpr std::array<Padding, 6> kPaddings{
    {{8, 8}, {128, 16}, {512, 32}, {1024, 64}, {2048, 128}, {1'000'000'000, 512}}};

cudaStream_t queue(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle());
}

void check_table(const std::string& op, const ConstTensorView& table) {
  if (table.dtype != DType::kBF16)
    throw OpError(op + ": table is " + std::string(name(table.dtype)) + ", must come from make_table");
}

class CudaOps final : public Ops {
 public:
  CudaOps(const cudaDeviceProp& properties, const CudaOptions& options)
      : name_(properties.name), gemm_(memory_, options.plan_folder), staging_(options.num_threads) {}

  std::string description() const override { return name_ + ", bf16, " + cuda::Gemm::library_version(); }
  DType compute_dtype() const override { return DType::kBF16; }
  std::shared_ptr<Memory> memory() override { return memory_; }
  std::optional<DeviceMemoryBytes> memory_bytes() const override {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    return DeviceMemoryBytes{free_bytes, total_bytes};
  }
  std::uint64_t scratch_bytes() const override { return cuda::Gemm::kWorkspaceBytes; }
  void drop_scratch() override {
    synchronize(stream());
    gemm_.drop_workspace();
  }

  Stream stream() override { return Stream(static_cast<void*>(compute_.get())); }
  Stream side_stream(std::size_t number) override {
    while (side_streams_.size() <= number)
      side_streams_.push_back(std::make_unique<cuda::OwnedStream>(true));
    return Stream(static_cast<void*>(side_streams_[number]->get()));
  }
  using Device::wait_for;
  void wait_for(Stream waiting, Stream other) override {
    // Events may be used anew: a wait that was put on a stream keeps what it waits for.
    const cuda::OwnedEvent& event = events_[next_event_++ % events_.size()];
    check_cuda(cudaEventRecord(event.get(), queue(other)), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(queue(waiting), event.get(), 0), "cudaStreamWaitEvent");
  }
  void set_mark(std::size_t number, Stream stream) override { marks_.set(number, queue(stream)); }
  void wait_for_mark(Stream waiting, std::size_t number) override { marks_.wait(queue(waiting), number); }
  bool is_done(Stream stream) override {
    const cudaError_t state = cudaStreamQuery(queue(stream));
    if (state == cudaErrorNotReady) return false;
    check_cuda(state, "work on the GPU");
    return true;
  }
  void synchronize(Stream stream) override {
    check_cuda(cudaStreamSynchronize(queue(stream)), "work on the GPU");
  }

  std::unique_ptr<Recordings> make_recordings() override {
    return std::make_unique<cuda::GraphRecordings>(kRecordedShapes, marks_);
  }
  bool records_work() const override { return true; }

  std::shared_ptr<void> pin(std::span<std::byte> host) override {
    if (host.empty()) return nullptr;
    check_cuda(cudaHostRegister(host.data(), host.size(), cudaHostRegisterDefault), "cudaHostRegister");
    return {host.data(), [](void* data) { cudaHostUnregister(data); }};
  }

  std::int64_t padded_rows(std::int64_t rows) const override {
    const auto padding =
        std::find_if(kPaddings.begin(), kPaddings.end(), [&](const Padding& p) { return rows <= p.most; });
    return (rows + padding->step - 1) / padding->step * padding->step;
  }
  std::int64_t padded_head_dim(std::int64_t head_dim) const override {
    const auto* size = std::find_if(kHeadDims.begin(), kHeadDims.end(),
                                    [&](std::int64_t fast_size) { return fast_size >= head_dim; });
    return size == kHeadDims.end() ? head_dim : *size;
  }
  std::int64_t efficient_rows() const override { return kEfficientRows; }

  Table make_table(ConstTensorView host, std::shared_ptr<const void>) override {
    Table table;
    table.view = {nullptr, DType::kBF16, host.shape};
    table.storage = Buffer(memory_, table.view.size_bytes());
    const TensorView view = table.storage.view(DType::kBF16, host.shape);
    table.view = view;
    upload(view, host, stream());
    synchronize(stream());
    return table;
  }

  void tune_gemm(ConstTensorView x, std::span<const ConstMatrixView> weights, MatrixView y,
                 std::int64_t geglu_block) override {
    cuda::GemmCall call{{x, {}, y}, geglu_block};
    // The place of the result is of no account: a half of the scratch's rows is as large as it.
    Buffer out;
    if (geglu_block > 0) {
      const Shape shape{y.rows, y.columns / 2};
      out = Buffer(memory_, TensorView{nullptr, DType::kBF16, shape}.size_bytes());
      call.out = out.view(DType::kBF16, shape);
    }
    gemm_.tune(call, weights, queue(stream()));
    synchronize(stream());
  }
  void load_tuning() override { gemm_.load(); }
  std::optional<std::string> save_tuning() override { return gemm_.save(); }

 protected:
  void do_upload(TensorView dst, std::span<const ConstMatrixView> host_parts, Stream stream) override {
    staging_.copy(dst, host_parts, queue(stream));
  }
  void do_copy_to_host(TensorView host_dst, ConstTensorView src, Stream stream) override {
    check_cuda(
        cudaMemcpyAsync(host_dst.data, src.data, src.size_bytes(), cudaMemcpyDeviceToHost, queue(stream)),
        "copy to the host");
  }
  void do_embed(ConstTensorView ids, ConstTensorView table, float scale, TensorView out,
                Stream stream) override {
    check_table("embed", table);
    cuda::embed(ids, table, scale, out, queue(stream));
  }
  void do_rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView out,
                   Stream stream) override {
    cuda::rms_norm(x, weight, eps, out, queue(stream));
  }
  void do_add_norm(const AddNorm& args, Stream stream) override { cuda::add_norm(args, queue(stream)); }
  void do_gemm(ConstTensorView x, ConstMatrixView w, MatrixView y, Stream stream) override {
    gemm_.run({{x, w, y}}, queue(stream));
  }
  void do_gemm_geglu(ConstTensorView x, ConstMatrixView gate_up, std::int64_t block, TensorView scratch,
                     TensorView out, Stream stream) override {
    gemm_.run({{x, gate_up, scratch}, block, out}, queue(stream));
  }
  void do_norm_rope(TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight,
                    ConstTensorView k_weight, float eps, ConstTensorView rope, ConstTensorView positions,
                    Stream stream) override {
    cuda::norm_rope(qkv, heads, q_weight, k_weight, eps, rope, positions, queue(stream));
  }
  void do_attention(ConstTensorView qkv, const AttentionSpans& spans, const AttentionParams& params,
                    TensorView out, Stream stream) override {
    cuda::attention(qkv, spans, params, out, queue(stream));
  }
  void do_geglu(ConstTensorView gate_up, std::int64_t block, TensorView out, Stream stream) override {
    cuda::geglu(gate_up, block, out, queue(stream));
  }
  void do_store_kv(ConstTensorView qkv, const HeadLayout& heads, const CacheRows& rows, TensorView cache,
                   Stream stream) override {
    cuda::store_kv(qkv, heads, rows, cache, queue(stream));
  }
  void do_attention_cached(ConstTensorView qkv, const CacheRows& rows, ConstTensorView cache,
                           const AttentionParams& params, TensorView out, Stream stream) override {
    cuda::attention_cached(qkv, rows, cache, params, out, queue(stream));
  }
  void do_unembed(ConstTensorView x, ConstTensorView table, TensorView out, Stream stream) override {
    check_table("unembed", table);
    gemm_.run({{x, table, out}}, queue(stream));
  }
  void do_copy(TensorView dst, ConstTensorView src, Stream stream) override {
    check_cuda(cudaMemcpyAsync(dst.data, src.data, src.size_bytes(), cudaMemcpyDeviceToDevice, queue(stream)),
               "copy on the device");
  }
  void do_layer_norm(ConstTensorView x, ConstTensorView weight, ConstTensorView bias, float eps,
                     TensorView out, Stream stream) override {
    cuda::layer_norm(x, weight, bias, eps, out, queue(stream));
  }
  void do_pool_squares(ConstTensorView x, std::int64_t k, TensorView out, Stream stream) override {
    cuda::pool_squares(x, k, out, queue(stream));
  }
  void do_linear(const Linear& args, Stream stream) override { gemm_.linear(args, queue(stream)); }
  void do_gemm_sums(ConstTensorView x, ConstTensorView w, bool adds, TensorView sums,
                    Stream stream) override {
    cuda::GemmCall call{{x, w, sums}};
    if (adds) call.add = sums;
    gemm_.run(call, queue(stream));
  }
  void do_add_bias(ConstTensorView sums, ConstTensorView bias, TensorView out, Stream stream) override {
    cuda::end_linear(sums, bias, Activation::kNone, {}, out, queue(stream));
  }
  void do_rms_rows(ConstTensorView x, ConstTensorView rows, float factor, float eps, TensorView out,
                   Stream stream) override {
    cuda::rms_rows(x, rows, factor, eps, out, queue(stream));
  }
  void do_range_rows(ConstTensorView x, ConstTensorView rows, ConstTensorView bounds, float eps,
                     TensorView scratch, TensorView out, Stream stream) override {
    cuda::range_rows(x, rows, bounds, eps, scratch, out, queue(stream));
  }
  void do_fill_registers(ConstTensorView features, ConstTensorView bounds, ConstTensorView registers,
                         TensorView out, Stream stream) override {
    cuda::fill_registers(features, bounds, registers, out, queue(stream));
  }
  void do_norm_rope_across(TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight,
                           ConstTensorView k_weight, float eps, ConstTensorView rope, RopePairs pairs,
                           Stream stream) override {
    cuda::norm_rope_across(qkv, heads, q_weight, k_weight, eps, rope, pairs, queue(stream));
  }
  void do_gate_heads(TensorView x, ConstTensorView logits, Stream stream) override {
    cuda::gate_heads(x, logits, queue(stream));
  }

 private:
  std::string name_;
  std::shared_ptr<Memory> memory_ = std::make_shared<cuda::DeviceMemory>();
  cuda::OwnedStream compute_;
  std::vector<std::unique_ptr<cuda::OwnedStream>> side_streams_;
  std::array<cuda::OwnedEvent, 8> events_;
  std::size_t next_event_ = 0;
  cuda::Marks marks_;
  cuda::Gemm gemm_;
  cuda::Staging staging_;
};

}  // namespace

int num_cuda_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver is no failure of a later call
  return 0;
}

std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options) {
  if (const int count = num_cuda_devices(); options.device < 0 || options.device >= count) {
    throw std::runtime_error("GPU " + std::to_string(options.device) + " is not there: this process sees " +
                             std::to_string(count) + " (CUDA_VISIBLE_DEVICES limits them)");
  }
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, options.device), "cudaGetDeviceProperties");
  if (properties.major != 9) {
    throw std::runtime_error("GPU " + std::to_string(options.device) + ", " + properties.name +
                             ", has compute capability " + std::to_string(properties.major) + "." +
                             std::to_string(properties.minor) +
                             "; the kernels are built for 9.0 (Hopper): use another GPU, or device cpu");
  }
  check_cuda(cudaSetDevice(options.device), "cudaSetDevice");
  return std::make_unique<CudaOps>(properties, options);
}

}  // namespace gemmad
