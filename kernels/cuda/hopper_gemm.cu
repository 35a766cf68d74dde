#include "kernels/cuda/hopper_gemm.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "kernels/cuda/hopper_boxes.h"
#include "kernels/cuda/hopper_geglu_kernel.h"

namespace gemmad::cuda {
namespace {

namespace kernel = hopper_gemm_kernel;

constexpr int kMaxDevices = 64;
constexpr int kPlainRows = 128;  // of the weights, per block that is not paired

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

bool is_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

[[noreturn]] void reject_plan() {
  throw std::invalid_argument("hopper_gemm cannot follow this plan");
}

template <typename L, typename Use>
auto use_layout(Use&& use) {
  return use(std::type_identity<L>());
}

template <typename Use>
auto with_paired_layout(const HopperGemmPlan& plan, Use&& use) {
  switch (plan.rows * 1000 + plan.token_tile) {
    case 128128:
      return use_layout<kernel::PairedLayout<128, 1>>(use);
    case 128192:
      return use_layout<kernel::PairedLayout<192, 1>>(use);
    case 128256:
      return use_layout<kernel::PairedLayout<256, 1>>(use);
    case 256064:
      return use_layout<kernel::PairedLayout<64, 2>>(use);
    case 256128:
      return use_layout<kernel::PairedLayout<128, 2>>(use);
    default:
      reject_plan();
  }
}

template <typename Use>
auto with_layout_of_two(const HopperGemmPlan& plan, Use&& use) {
  switch (plan.token_tile) {
    case 16:
      return use_layout<kernel::Layout<16, 2>>(use);
    case 32:
      return use_layout<kernel::Layout<32, 2>>(use);
    case 64:
      return use_layout<kernel::Layout<64, 2>>(use);
    case 128:
      return use_layout<kernel::Layout<128, 2>>(use);
    default:
      reject_plan();
  }
}

template <typename Use>
auto with_layout_of_one(const HopperGemmPlan& plan, Use&& use) {
  switch (plan.token_tile) {
    case 16:
      return use_layout<kernel::Layout<16, 1>>(use);
    case 32:
      return use_layout<kernel::Layout<32, 1>>(use);
    case 64:
      return use_layout<kernel::Layout<64, 1>>(use);
    case 128:
      return use_layout<kernel::Layout<128, 1>>(use);
    case 192:
      return use_layout<kernel::Layout<192, 1>>(use);
    case 256:
      return use_layout<kernel::Layout<256, 1>>(use);
    default:
      reject_plan();
  }
}

/// Calls `use` with std::type_identity of the plan's layout.
template <typename Use>
auto with_layout(const HopperGemmPlan& plan, Use&& use) {
  if (plan.paired) return with_paired_layout(plan, use);
  return plan.held == 2 ? with_layout_of_two(plan, use) : with_layout_of_one(plan, use);
}

template <typename L, bool kGeglu>
constexpr auto kernel_of() {
  if constexpr (L::kPaired) {
    return kernel::multiply_pairs_kernel<L>;
  } else {
    return kernel::multiply_kernel<L, kGeglu>;
  }
}

// ---- what the device holds ----

int current_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

bool is_hopper() {
  const int device = current_device();
  int major = 0;
  int minor = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
             "cudaDeviceGetAttribute");
  check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
             "cudaDeviceGetAttribute");
  return major == 9 && minor == 0 && device < kMaxDevices;
}

/// Lets the kernel have its shared memory, then counts how many clusters of `cluster` blocks fit on the
/// device at once. 0 when the device has none that large.
template <typename L, bool kGeglu>
int count_clusters(int cluster) {
  const auto function = kernel_of<L, kGeglu>();
  constexpr int kSharedBytes = L::kAllocated;
  check_cuda(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
             "cudaFuncSetAttribute");
  check_cuda(cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared),
             "cudaFuncSetAttribute");
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(cluster * kHopperMultiprocessors * L::kHeld));
  config.blockDim = dim3(kernel::kThreads);
  config.dynamicSmemBytes = kSharedBytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int count = 0;
  check_cuda(cudaOccupancyMaxActiveClusters(&count, function, &config), "cudaOccupancyMaxActiveClusters");
  return count;
}

/// count_clusters() of the current device, asked once. By every launch: it is what prepares the kernel.
template <typename L, bool kGeglu>
int max_clusters(int cluster) {
  constexpr int kUnknown = 0;
  static std::array<std::array<std::atomic<int>, kLargestHopperCluster + 1>, kMaxDevices> counts_plus_1{};
  std::atomic<int>& known =
      counts_plus_1[static_cast<std::size_t>(current_device())][static_cast<std::size_t>(cluster)];
  if (known.load() == kUnknown) known.store(1 + count_clusters<L, kGeglu>(cluster));
  return known.load() - 1;
}

int max_clusters(const HopperGemmPlan& plan, bool geglu) {
  const int cluster = plan.split * plan.share;
  return with_layout(plan, [&](auto layout) {
    using L = typename decltype(layout)::type;
    return geglu ? max_clusters<L, true>(cluster) : max_clusters<L, false>(cluster);
  });
}

HopperClusters clusters_of(const HopperGemmSizes& sizes) {
  return [geglu = sizes.geglu](const HopperGemmPlan& plan) { return max_clusters(plan, geglu); };
}

// ---- the launch ----

bool has_wide_rows(const MatrixView& y) {
  return is_aligned(y.data) && y.row_stride % 8 == 0;
}

kernel::Work describe_work(ConstMatrixView x, ConstMatrixView w, MatrixView y, const HopperGemmPlan& plan) {
  kernel::Work work{};
  work.y = y.as<Bf16>();
  work.y_stride = y.row_stride;
  work.tokens = static_cast<int>(y.rows);
  work.features = static_cast<int>(y.columns);
  work.wide_stores = has_wide_rows(y);
  work.token_tiles = static_cast<int>(ceil_div(y.rows, plan.token_tile));
  work.row_groups = static_cast<int>(ceil_div(w.rows, plan.rows * plan.share));
  work.items = work.row_groups * work.token_tiles;
  work.steps = static_cast<int>(ceil_div(x.columns, kernel::kStep));
  work.share = plan.share;
  work.part_tokens = plan.token_tile / plan.share;
  work.split = plan.split;
  work.ahead = plan.ahead;
  return work;
}

/// When at most half of the clusters would work in the last round, all do, on halves of those tiles.
void halve_last_round(kernel::Work& work, int clusters) {
  const int last = work.items % clusters;
  if (work.items < clusters || last == 0 || 2 * last > clusters) return;
  work.items -= last;
  work.halves = 2 * last;
}

template <typename L, bool kGeglu>
void launch_by_plan(ConstMatrixView x, ConstMatrixView w, MatrixView y, const HopperGemmPlan& plan,
                    cudaStream_t stream) {
  const int cluster = plan.split * plan.share;
  const int fit = max_clusters<L, kGeglu>(cluster);
  if (fit == 0) throw CudaError(cudaErrorInvalidConfiguration, "hopper_gemm's cluster");
  kernel::Work work = describe_work(x, w, y, plan);
  if (L::kHalves && plan.share == 2 && !plan.whole) halve_last_round(work, fit);
  // Clusters that take one item after another get as many each.
  std::int64_t clusters = ceil_div(work.items, ceil_div(work.items, fit));
  if (work.halves > 0) clusters = fit;
  if (plan.split > 1) clusters = work.items;
  Grid grid{dim3(static_cast<unsigned>(clusters * cluster)), dim3(kernel::kThreads)};
  grid.shared_bytes = L::kAllocated;
  grid.cluster = static_cast<unsigned>(cluster);
  const CUtensorMap tokens = kernel::describe_rows(x, work.part_tokens);
  if constexpr (L::kPaired) {
    launch("launch hopper_geglu_gemm", kernel::multiply_pairs_kernel<L>, grid, stream,
           kernel::describe_pairs(w, L::kRows), tokens,
           kernel::describe_out(y, L::kOutFeatures, L::kOutBoxTokens), work);
  } else {
    launch("launch hopper_gemm", kernel::multiply_kernel<L, kGeglu>, grid, stream,
           kernel::describe_rows(w, L::kRows), tokens, work);
  }
}

// ---- what is taken ----

bool is_small(std::int64_t extent) {
  return extent <= std::numeric_limits<int>::max() / 4;
}

bool takes(const ConstTensorView& x, const ConstMatrixView& w, const MatrixView& y, bool geglu) {
  if (x.dtype != DType::kBF16 || w.dtype != DType::kBF16 || y.dtype != DType::kBF16) return false;
  if (x.shape.rank() != 2 || x.shape[0] != y.rows || x.shape[1] != w.columns) return false;
  if (w.rows != (geglu ? 2 * y.columns : y.columns) || (geglu && w.rows % kernel::kPairedRows != 0))
    return false;
  if (y.rows < 1 || y.columns < 1 || w.columns < kernel::kStep) return false;
  if (!is_small(y.rows) || !is_small(w.rows) || !is_small(w.columns)) return false;
  if (!is_small(ceil_div(y.rows, 16) * ceil_div(w.rows, kPlainRows))) return false;  // blocks
  if (w.columns % 8 != 0 || w.row_stride % 8 != 0 || !is_aligned(x.data) || !is_aligned(w.data)) return false;
  return is_hopper();
}

void check_taken(const ConstTensorView& x, const ConstMatrixView& w, const MatrixView& y, bool geglu) {
  if (!takes(x, w, y, geglu)) throw std::invalid_argument("hopper_gemm does not take these operands");
}

/// The same bytes by the kernel that can write anywhere.
HopperGemmPlan without_pairs(HopperGemmPlan plan) {
  plan.paired = false;
  plan.rows = kPlainRows;
  return plan;
}

void run(const ConstTensorView& x, const ConstMatrixView& w, const MatrixView& y, bool geglu,
         const HopperGemmPlan& plan, cudaStream_t stream) {
  if (plan.paired && !has_wide_rows(y)) return run(x, w, y, geglu, without_pairs(plan), stream);
  with_layout(plan, [&](auto layout) {
    using L = typename decltype(layout)::type;
    if (geglu) {
      launch_by_plan<L, true>(x, w, y, plan, stream);
    } else if constexpr (!L::kPaired) {
      launch_by_plan<L, false>(x, w, y, plan, stream);
    }
  });
}

}  // namespace

bool hopper_gemm_takes(ConstTensorView x, ConstMatrixView w, MatrixView y) {
  return takes(x, w, y, false);
}

bool hopper_geglu_gemm_takes(ConstTensorView x, ConstMatrixView gate_up, TensorView out) {
  return out.shape.rank() == 2 && takes(x, gate_up, out, true);
}

HopperGemmPlan hopper_gemm_plan(const HopperGemmSizes& sizes) {
  return choose_hopper_plan(sizes, clusters_of(sizes));
}

void hopper_gemm_by_plan(ConstTensorView x, ConstMatrixView w, MatrixView y, bool geglu,
                         const HopperGemmPlan& plan, cudaStream_t stream) {
  check_taken(x, w, y, geglu);
  if (!is_possible(plan, {x.shape[0], w.rows, w.columns, geglu})) reject_plan();
  run(x, w, y, geglu, plan, stream);
}

void hopper_gemm(ConstTensorView x, ConstMatrixView w, MatrixView y, cudaStream_t stream) {
  check_taken(x, w, y, false);
  run(x, w, y, false, hopper_gemm_plan({y.rows, w.rows, w.columns, false}), stream);
}

void hopper_geglu_gemm(ConstTensorView x, ConstMatrixView gate_up, TensorView out, cudaStream_t stream) {
  const MatrixView y = out;
  check_taken(x, gate_up, y, true);
  run(x, gate_up, y, true, hopper_gemm_plan({y.rows, gate_up.rows, gate_up.columns, true}), stream);
}

}  // namespace gemmad::cuda
