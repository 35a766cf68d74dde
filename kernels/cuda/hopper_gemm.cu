#include "kernels/cuda/hopper_gemm.h"

#include <cudaTypedefs.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "kernels/cuda/hopper_gemm_kernel.h"

namespace gemmad::cuda {
namespace {

namespace kernel = hopper_gemm_kernel;

constexpr int kBlocksToFill = 132;  // an H100's or H200's multiprocessors, each with one block
constexpr int kLargestCluster = 8;  // that every device has
constexpr int kMaxDevices = 64;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

bool is_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

/// Calls `use` with the constant of that value.
template <typename Use>
auto with_token_tile(int token_tile, Use&& use) {
  switch (token_tile) {
    case 16:
      return use(std::integral_constant<int, 16>());
    case 32:
      return use(std::integral_constant<int, 32>());
    case 64:
      return use(std::integral_constant<int, 64>());
    case 128:
      return use(std::integral_constant<int, 128>());
    case 192:
      return use(std::integral_constant<int, 192>());
    case 256:
      return use(std::integral_constant<int, 256>());
    default:
      throw std::invalid_argument("hopper_gemm has no such token tile");
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
template <int kTokens, bool kGeglu>
int count_clusters(int cluster) {
  const auto function = kernel::multiply_kernel<kTokens, kGeglu>;
  constexpr int kSharedBytes = kernel::Layout<kTokens>::kAllocated;
  check_cuda(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
             "cudaFuncSetAttribute");
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(cluster * kBlocksToFill));
  config.blockDim = dim3(kernel::kThreads);
  config.dynamicSmemBytes = kSharedBytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int count = 0;
  check_cuda(cudaOccupancyMaxActiveClusters(&count, function, &config), "cudaOccupancyMaxActiveClusters");
  return count;
}

/// count_clusters() of the current device, asked once. By every launch: it is what prepares the kernel.
template <int kTokens, bool kGeglu>
int max_clusters(int cluster) {
  constexpr int kUnknown = 0;
  static std::array<std::array<std::atomic<int>, kLargestCluster + 1>, kMaxDevices> counts_plus_1{};
  std::atomic<int>& known =
      counts_plus_1[static_cast<std::size_t>(current_device())][static_cast<std::size_t>(cluster)];
  if (known.load() == kUnknown) known.store(1 + count_clusters<kTokens, kGeglu>(cluster));
  return known.load() - 1;
}

int max_clusters(int token_tile, bool geglu, int cluster) {
  return with_token_tile(token_tile, [&](auto tile) {
    return geglu ? max_clusters<tile(), true>(cluster) : max_clusters<tile(), false>(cluster);
  });
}

// ---- the plan ----

int choose_token_tile(std::int64_t tokens) {
  for (int tile : {16, 32, 64, 128, 192, 256})
    if (tokens <= tile) return tile;
  int best = 256;  // the fewest tokens that do not exist; of equal ones, the largest tile
  for (int tile : {192, 128})
    if (ceil_div(tokens, tile) * tile < ceil_div(tokens, best) * best) best = tile;
  return best;
}

/// As many parts of K as fill the device, of at least four steps each.
int choose_split(std::int64_t tiles, std::int64_t steps) {
  int split = 1;
  while (2 * split <= kLargestCluster && tiles * 2 * split <= kBlocksToFill && steps >= 4 * 2 * split)
    split *= 2;
  return split;
}

/// How many times one after another the device is filled.
std::int64_t count_rounds(std::int64_t items, int clusters) {
  return clusters == 0 ? std::numeric_limits<std::int64_t>::max() : ceil_div(items, clusters);
}

// ---- the launch ----

/// Describes boxes of `box_rows` rows by one step of K to the copy engine; zeros beyond the matrix.
CUtensorMap describe_boxes(ConstMatrixView matrix, int box_rows) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                                &found),
               "cudaGetDriverEntryPointByVersion cuTensorMapEncodeTiled");
    if (found != cudaDriverEntryPointSuccess)
      throw CudaError(cudaErrorNotSupported, "cuTensorMapEncodeTiled");
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(matrix.columns),
                                static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(matrix.row_stride) * 2};
  const cuuint32_t box[] = {kernel::kStep, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t element_strides[] = {1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(matrix.data), extents, strides, box,
             element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw CudaError(cudaErrorInvalidValue, "cuTensorMapEncodeTiled");
  return map;
}

kernel::Work describe_work(ConstMatrixView x, ConstMatrixView w, MatrixView y, const HopperGemmPlan& plan) {
  kernel::Work work{};
  work.y = y.as<Bf16>();
  work.y_stride = y.row_stride;
  work.tokens = static_cast<int>(y.rows);
  work.features = static_cast<int>(y.columns);
  work.wide_stores = is_aligned(y.data) && y.row_stride % 8 == 0;
  work.token_tiles = static_cast<int>(ceil_div(y.rows, plan.token_tile));
  work.items = static_cast<int>(ceil_div(w.rows, kernel::kRows * plan.share)) * work.token_tiles;
  work.steps = static_cast<int>(ceil_div(x.columns, kernel::kStep));
  work.share = plan.share;
  work.split = plan.split;
  return work;
}

template <int kTokens, bool kGeglu>
void launch_by_plan(ConstMatrixView x, ConstMatrixView w, MatrixView y, const HopperGemmPlan& plan,
                    cudaStream_t stream) {
  const int cluster = plan.split * plan.share;
  const int fit = max_clusters<kTokens, kGeglu>(cluster);
  if (fit == 0) throw CudaError(cudaErrorInvalidConfiguration, "hopper_gemm's cluster");
  const kernel::Work work = describe_work(x, w, y, plan);
  // Clusters that take one item after another get as many each.
  const auto clusters = plan.split > 1 ? work.items : ceil_div(work.items, count_rounds(work.items, fit));
  Grid grid{dim3(static_cast<unsigned>(clusters * cluster)), dim3(kernel::kThreads)};
  grid.shared_bytes = kernel::Layout<kTokens>::kAllocated;
  grid.cluster = static_cast<unsigned>(cluster);
  launch("launch hopper_gemm", kernel::multiply_kernel<kTokens, kGeglu>, grid, stream,
         describe_boxes(w, kernel::kRows), describe_boxes(x, kTokens / plan.share), work);
}

// ---- what is taken ----

bool is_small(std::int64_t extent) {
  return extent <= std::numeric_limits<int>::max() / 4;
}

bool takes(const ConstTensorView& x, const ConstMatrixView& w, const MatrixView& y, bool geglu) {
  if (x.dtype != DType::kBF16 || w.dtype != DType::kBF16 || y.dtype != DType::kBF16) return false;
  if (x.shape.rank() != 2 || x.shape[0] != y.rows || x.shape[1] != w.columns) return false;
  if (w.rows != (geglu ? 2 * y.columns : y.columns) || (geglu && w.rows % kernel::kRows != 0)) return false;
  if (y.rows < 1 || y.columns < 1 || w.columns < kernel::kStep) return false;
  if (!is_small(y.rows) || !is_small(w.rows) || !is_small(w.columns)) return false;
  if (!is_small(ceil_div(y.rows, 16) * ceil_div(w.rows, kernel::kRows))) return false;  // blocks
  if (w.columns % 8 != 0 || w.row_stride % 8 != 0 || !is_aligned(x.data) || !is_aligned(w.data)) return false;
  return is_hopper();
}

void check_taken(const ConstTensorView& x, const ConstMatrixView& w, const MatrixView& y, bool geglu) {
  if (!takes(x, w, y, geglu)) throw std::invalid_argument("hopper_gemm does not take these operands");
}

void check_plan(const HopperGemmPlan& plan, std::int64_t columns) {
  const auto is_power = [](int n) { return n == 1 || n == 2 || n == 4 || n == 8; };
  const bool valid =
      is_power(plan.split) && is_power(plan.share) && plan.split * plan.share <= kLargestCluster &&
      plan.split <= ceil_div(columns, kernel::kStep) && plan.token_tile % (8 * plan.share) == 0;
  if (!valid) throw std::invalid_argument("hopper_gemm cannot follow this plan");
}

void run(const ConstTensorView& x, const ConstMatrixView& w, const MatrixView& y, bool geglu,
         const HopperGemmPlan& plan, cudaStream_t stream) {
  with_token_tile(plan.token_tile, [&](auto tile) {
    if (geglu) {
      launch_by_plan<tile(), true>(x, w, y, plan, stream);
    } else {
      launch_by_plan<tile(), false>(x, w, y, plan, stream);
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

HopperGemmPlan hopper_gemm_plan(std::int64_t tokens, std::int64_t rows, std::int64_t columns, bool geglu) {
  HopperGemmPlan plan;
  plan.token_tile = choose_token_tile(tokens);
  const std::int64_t row_tiles = ceil_div(rows, kernel::kRows);
  const std::int64_t token_tiles = ceil_div(tokens, plan.token_tile);
  plan.split = choose_split(row_tiles * token_tiles, ceil_div(columns, kernel::kStep));
  // Few tokens are a small part of what a block reads. Sharing them is worth no empty tile and no further
  // round.
  if (plan.token_tile >= 64 && row_tiles % 2 == 0 && 2 * plan.split <= kLargestCluster) {
    const std::int64_t alone =
        count_rounds(row_tiles * token_tiles, max_clusters(plan.token_tile, geglu, plan.split));
    const std::int64_t shared =
        count_rounds(row_tiles / 2 * token_tiles, max_clusters(plan.token_tile, geglu, 2 * plan.split));
    if (shared <= alone) plan.share = 2;
  }
  return plan;
}

void hopper_gemm_by_plan(ConstTensorView x, ConstMatrixView w, MatrixView y, bool geglu,
                         const HopperGemmPlan& plan, cudaStream_t stream) {
  check_taken(x, w, y, geglu);
  check_plan(plan, w.columns);
  run(x, w, y, geglu, plan, stream);
}

void hopper_gemm(ConstTensorView x, ConstMatrixView w, MatrixView y, cudaStream_t stream) {
  check_taken(x, w, y, false);
  run(x, w, y, false, hopper_gemm_plan(y.rows, w.rows, w.columns, false), stream);
}

void hopper_geglu_gemm(ConstTensorView x, ConstMatrixView gate_up, TensorView out, cudaStream_t stream) {
  const MatrixView y = out;
  check_taken(x, gate_up, y, true);
  run(x, gate_up, y, true, hopper_gemm_plan(y.rows, gate_up.rows, gate_up.columns, true), stream);
}

}  // namespace gemmad::cuda
