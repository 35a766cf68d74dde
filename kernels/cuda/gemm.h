// Products: which kernel computes which, found by measuring and kept between starts.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/memory.h"
#include "kernels/base/tensor.h"
#include "kernels/cuda/gemm_plans.h"
#include "kernels/cuda/lt_matmul.h"
#include "kernels/ops.h"

namespace gemmad::cuda {

/// One product's operands. `gate_up` products (geglu_block > 0) end in `out`, and y is their scratch.
struct GemmCall : ProductOperands {
  std::int64_t geglu_block = 0;
  TensorView out = {};
};

/// The products of the current device. A shape that was not tuned takes what cuBLASLt thinks fastest. One
/// caller at a time.
class Gemm {
 public:
  /// `plan_folder`: where plans are kept between starts; empty: nowhere. Throws CublasError, CudaError.
  Gemm(std::shared_ptr<Memory> memory, const std::filesystem::path& plan_folder);
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;
  ~Gemm();

  /// As Ops::gemm, Ops::gemm_geglu and, where `add` is y or nothing, Ops::gemm_sums; may be recorded in a
  /// graph. Throws CublasError where the library has no algorithm.
  void run(const GemmCall& call, cudaStream_t stream);
  /// As Ops::linear; may be recorded. What the library cannot do at once, it does as fp32 sums of some rows
  /// at a time. Throws OpError where not even one row's have room (2^20 outputs).
  void linear(const Ops::Linear& args, cudaStream_t stream);
  /// As Ops::tune_gemm, for `call` with each of `weights` in turn. Does nothing where there is a plan.
  void tune(GemmCall call, std::span<const ConstMatrixView> weights, cudaStream_t stream);
  /// Takes plans from the file, for products that have none.
  void load();
  /// Writes the plans, if one was found since they were read or written. Returns what went wrong, if
  /// anything.
  std::optional<std::string> save();

  /// Device memory that products work in, taken with the first: the library's, then place for sums.
  static constexpr std::size_t kLibraryBytes = std::size_t{32} << 20;
  static constexpr std::size_t kSumsBytes = std::size_t{4} << 20;
  static constexpr std::size_t kWorkspaceBytes = kLibraryBytes + kSumsBytes;
  /// Gives that memory back until the next product. No graph with a product in it may be started after that.
  void drop_workspace() { workspace_ = Buffer(); }

  static std::string library_version();

 private:
  struct Ready {
    GemmPlan plan;
    LtMatmul matmul;
  };

  /// Null where the library has no algorithm.
  const Ready* find_ready(const Product& product);
  std::optional<Ready> make_ready(const Product& product) const;
  std::vector<GemmPlan> candidates(const GemmCall& call, const LtMatmul& matmul) const;
  float time(const GemmPlan& plan, const LtMatmul& matmul, GemmCall call,
             std::span<const ConstMatrixView> weights, cudaStream_t stream);
  void start(const GemmPlan& plan, const LtMatmul& matmul, const GemmCall& call, cudaStream_t stream);
  void run_in_parts(const Ops::Linear& args, cudaStream_t stream);
  std::byte* workspace();

  std::shared_ptr<Memory> memory_;
  std::filesystem::path plan_file_;  // empty: none
  GemmPlans plans_;
  bool has_new_plans_ = false;  // that the file has not
  cublasLtHandle_t handle_ = nullptr;
  std::map<Product, std::optional<Ready>> ready_;
  Buffer workspace_;
};

}  // namespace gemmad::cuda
