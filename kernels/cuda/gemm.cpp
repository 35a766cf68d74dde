#include "kernels/cuda/gemm.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <utility>

#include "kernels/cuda/hopper_gemm.h"
#include "kernels/cuda/kernels.h"

namespace gemmad::cuda {

namespace {

constexpr std::int64_t kManyRows = 1024;  // from here on the library knows best, and measuring takes long
constexpr std::int64_t kHopperGegluBlock = 64;  // the one that hopper_geglu_gemm knows
constexpr int kCandidates = 8;
constexpr int kCandidatesOfMany = 3;
constexpr std::size_t kTimedWeights = 12;  // so many that the cache does not hold them
constexpr int kTimedRuns = 3;

std::filesystem::path plan_file(const std::filesystem::path& folder) {
  if (folder.empty()) return {};
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  std::string name = properties.name;
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '-';
  }
  return folder / ("products-" + name + "-cublaslt-" + std::to_string(cublasLtGetVersion()) + ".txt");
}

Product product_of(const GemmCall& call) {
  return {product_shape(call.x, call.w, call.y), call.geglu_block};
}

/// Measures from one point of a stream to another.
class StreamTimer {
 public:
  explicit StreamTimer(cudaStream_t stream) : stream_(stream) {
    check_cuda(cudaEventCreate(&begin_), "cudaEventCreate");
    check_cuda(cudaEventCreate(&end_), "cudaEventCreate");
  }
  StreamTimer(const StreamTimer&) = delete;
  StreamTimer& operator=(const StreamTimer&) = delete;
  ~StreamTimer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  void begin() { check_cuda(cudaEventRecord(begin_, stream_), "cudaEventRecord"); }
  float end_ms() {
    check_cuda(cudaEventRecord(end_, stream_), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(end_), "time a product");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
    return ms;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace

Gemm::Gemm(std::shared_ptr<Memory> memory, const std::filesystem::path& plan_folder)
    : memory_(std::move(memory)), plan_file_(plan_file(plan_folder)) {
  load();
  const cublasStatus_t status = cublasLtCreate(&handle_);
  if (status != CUBLAS_STATUS_SUCCESS) throw CublasError(status, "cublasLtCreate");
}

Gemm::~Gemm() {
  cublasLtDestroy(handle_);
}

std::string Gemm::library_version() {
  return "cuBLASLt " + std::to_string(cublasLtGetVersion());
}

void Gemm::load() {
  if (!plan_file_.empty()) plans_.add(GemmPlans::read(plan_file_));
}

std::optional<std::string> Gemm::save() {
  if (plan_file_.empty() || !has_new_plans_) return std::nullopt;
  const std::optional<std::string> problem = plans_.write(plan_file_);
  has_new_plans_ = problem.has_value();
  return problem;
}

void Gemm::run(const GemmCall& call, cudaStream_t stream) {
  if (call.y.rows == 0 || call.y.columns == 0) return;
  if (call.w.columns == 0) {
    // A sum of nothing.
    const std::size_t element = size_bytes(call.y.dtype);
    return check_cuda(cudaMemset2DAsync(call.y.data, static_cast<std::size_t>(call.y.row_stride) * element, 0,
                                        static_cast<std::size_t>(call.y.columns) * element,
                                        static_cast<std::size_t>(call.y.rows), stream),
                      "clear a product");
  }
  const Ready& known = ready(product_of(call));
  start(known.plan, known.matmul, call, stream);
}

Gemm::Ready& Gemm::ready(const Product& product) {
  const auto found = ready_.find(product);
  if (found != ready_.end()) return found->second;
  LtMatmul matmul(handle_, product.shape);
  std::optional<GemmPlan> plan = plans_.find(product);
  if (plan && !plan->is_hopper && !matmul.accepts(plan->algorithm, kWorkspaceBytes)) plan.reset();
  if (!plan) {
    const auto algorithms = matmul.candidates(1, kWorkspaceBytes);
    if (algorithms.empty()) {
      const ProductShape& shape = product.shape;
      throw CublasError(CUBLAS_STATUS_NOT_SUPPORTED,
                        "a product of " + std::to_string(shape.rows) + " x " + std::to_string(shape.inputs) +
                            " by " + std::to_string(shape.outputs) + " x " + std::to_string(shape.inputs));
    }
    plan = GemmPlan{false, algorithms.front()};
  }
  return ready_.emplace(product, Ready{*plan, std::move(matmul)}).first->second;
}

void Gemm::start(const GemmPlan& plan, const LtMatmul& matmul, const GemmCall& call, cudaStream_t stream) {
  if (plan.is_hopper) {
    if (call.geglu_block > 0) return hopper_geglu_gemm(call.x, call.w, call.out, stream);
    return hopper_gemm(call.x, call.w, call.y, stream);
  }
  if (workspace_.size_bytes() == 0) workspace_ = Buffer(memory_, kWorkspaceBytes);
  matmul.run(plan.algorithm, call.x.data, call.w.data, call.y.data, workspace_, stream);
  if (call.geglu_block > 0) {
    const TensorView gate_up{call.y.data, call.y.dtype, {call.y.rows, call.y.columns}};
    geglu(gate_up, call.geglu_block, call.out, stream);
  }
}

std::vector<GemmPlan> Gemm::candidates(const GemmCall& call, const LtMatmul& matmul) const {
  std::vector<GemmPlan> plans;
  const int most = call.y.rows >= kManyRows ? kCandidatesOfMany : kCandidates;
  for (const LtMatmul::Algorithm& algorithm : matmul.candidates(most, kWorkspaceBytes))
    plans.push_back({false, algorithm});
  const bool takes = call.geglu_block == 0 ? hopper_gemm_takes(call.x, call.w, call.y)
                                           : call.geglu_block == kHopperGegluBlock &&
                                                 hopper_geglu_gemm_takes(call.x, call.w, call.out);
  if (takes) plans.push_back({true, {}});
  return plans;
}

float Gemm::time(const GemmPlan& plan, const LtMatmul& matmul, GemmCall call,
                 std::span<const ConstMatrixView> weights, cudaStream_t stream) {
  StreamTimer timer(stream);
  float best = std::numeric_limits<float>::max();
  for (int run = 0; run <= kTimedRuns; ++run) {
    timer.begin();
    for (std::size_t i = 0; i < std::min(kTimedWeights, weights.size()); ++i) {
      call.w = weights[i];
      start(plan, matmul, call, stream);
    }
    const float ms = timer.end_ms();
    if (run > 0) best = std::min(best, ms);  // the first one loads what the kernels need
  }
  return best;
}

void Gemm::tune(GemmCall call, std::span<const ConstMatrixView> weights, cudaStream_t stream) {
  if (weights.empty() || call.y.rows == 0 || call.y.columns == 0 || call.x.shape[1] == 0) return;
  call.w = weights.front();
  const Product product = product_of(call);
  if (plans_.find(product)) return;
  const LtMatmul matmul(handle_, product.shape);
  float best = std::numeric_limits<float>::max();
  for (const GemmPlan& plan : candidates(call, matmul)) {
    const float ms = time(plan, matmul, call, weights, stream);
    if (ms >= best) continue;
    best = ms;
    plans_.set(product, plan);
    has_new_plans_ = true;
  }
  ready_.erase(product);
}

}  // namespace gemmad::cuda
