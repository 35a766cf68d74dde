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
  return {product_shape(call), call.geglu_block};
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
    if (call.add.data != nullptr) return;
    const std::size_t element = size_bytes(call.y.dtype);
    return check_cuda(cudaMemset2DAsync(call.y.data, static_cast<std::size_t>(call.y.row_stride) * element, 0,
                                        static_cast<std::size_t>(call.y.columns) * element,
                                        static_cast<std::size_t>(call.y.rows), stream),
                      "clear a product");
  }
  const Product product = product_of(call);
  const Ready* known = find_ready(product);
  if (known == nullptr) {
    const ProductShape& shape = product.shape;
    throw CublasError(CUBLAS_STATUS_NOT_SUPPORTED,
                      "a product of " + std::to_string(shape.rows) + " x " + std::to_string(shape.inputs) +
                          " by " + std::to_string(shape.outputs) + " x " + std::to_string(shape.inputs));
  }
  start(known->plan, known->matmul, call, stream);
}

void Gemm::linear(const Ops::Linear& args, cudaStream_t stream) {
  if (args.y.shape.num_elements() == 0) return;
  const bool gelu = args.activation == Activation::kGelu;
  const GemmCall call{{args.x, args.w, args.y, args.bias, gelu, args.add}};
  if (args.x.shape[1] > 0 && !(gelu && args.add.data != nullptr)) {
    // An end of its own the library takes where everything lies as it likes.
    const Product product = product_of(call);
    const bool may_end = product.shape.alignment_bytes == 16 || product.shape.end == ProductEnd{};
    if (may_end && find_ready(product) != nullptr) return run(call, stream);
  }
  run_in_parts(args, stream);
}

void Gemm::run_in_parts(const Ops::Linear& args, cudaStream_t stream) {
  const std::int64_t num_rows = args.y.shape[0], inputs = args.x.shape[1], outputs = args.y.shape[1];
  const std::int64_t rows_at_once =
      static_cast<std::int64_t>(kSumsBytes / sizeof(float)) / std::max<std::int64_t>(outputs, 1);
  if (rows_at_once == 0) {
    throw OpError("linear: w has " + std::to_string(outputs) + " rows, must be at most " +
                  std::to_string(kSumsBytes / sizeof(float)) + " or everything be multiples of 16 bytes");
  }
  for (std::int64_t begin = 0; begin < num_rows; begin += rows_at_once) {
    const std::int64_t rows = std::min(rows_at_once, num_rows - begin);
    const TensorView sums{workspace() + kLibraryBytes, DType::kF32, {rows, outputs}};
    const auto part = [&](const void* data, std::int64_t width) {
      const auto* first = static_cast<const std::uint16_t*>(data);
      return ConstTensorView{first == nullptr ? nullptr : first + begin * width, DType::kBF16, {rows, width}};
    };
    run({{part(args.x.data, inputs), args.w, sums}}, stream);
    const TensorView y{args.y.as<std::uint16_t>() + begin * outputs, DType::kBF16, {rows, outputs}};
    end_linear(sums, args.bias, args.activation, part(args.add.data, outputs), y, stream);
  }
}

const Gemm::Ready* Gemm::find_ready(const Product& product) {
  auto found = ready_.find(product);
  if (found == ready_.end()) found = ready_.emplace(product, make_ready(product)).first;
  return found->second ? &*found->second : nullptr;
}

std::optional<Gemm::Ready> Gemm::make_ready(const Product& product) const {
  LtMatmul matmul(handle_, product.shape);
  std::optional<GemmPlan> plan = plans_.find(product);
  if (plan && !plan->is_hopper && !matmul.accepts(plan->algorithm, kLibraryBytes)) plan.reset();
  if (!plan) {
    const auto algorithms = matmul.candidates(1, kLibraryBytes);
    if (algorithms.empty()) return std::nullopt;
    plan = GemmPlan{false, algorithms.front()};
  }
  return Ready{*plan, std::move(matmul)};
}

std::byte* Gemm::workspace() {
  if (workspace_.size_bytes() == 0) workspace_ = Buffer(memory_, kWorkspaceBytes);
  return static_cast<std::byte*>(workspace_.data());
}

void Gemm::start(const GemmPlan& plan, const LtMatmul& matmul, const GemmCall& call, cudaStream_t stream) {
  if (plan.is_hopper) {
    if (call.geglu_block > 0) return hopper_geglu_gemm(call.x, call.w, call.out, stream);
    return hopper_gemm(call.x, call.w, call.y, stream);
  }
  matmul.run(plan.algorithm, call, {workspace(), kLibraryBytes}, stream);
  if (call.geglu_block > 0) {
    const TensorView gate_up{call.y.data, call.y.dtype, {call.y.rows, call.y.columns}};
    geglu(gate_up, call.geglu_block, call.out, stream);
  }
}

std::vector<GemmPlan> Gemm::candidates(const GemmCall& call, const LtMatmul& matmul) const {
  std::vector<GemmPlan> plans;
  const int most = call.y.rows >= kManyRows ? kCandidatesOfMany : kCandidates;
  for (const LtMatmul::Algorithm& algorithm : matmul.candidates(most, kLibraryBytes))
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
