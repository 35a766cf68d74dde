#include "kernels/cuda/recordings.h"

#include <algorithm>

#include "kernels/cuda/check.h"

namespace gemmad::cuda {

namespace {

/// Ends a capture that an exception leaves open.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin recording a graph");
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    if (!open_) return;
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(stream_, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
  cudaGraph_t end() {
    open_ = false;
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream_, &graph), "record a graph");
    return graph;
  }

 private:
  cudaStream_t stream_;
  bool open_ = true;
};

}  // namespace

GraphRecordings::Graph::~Graph() {
  if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
}

void GraphRecordings::Graph::capture(cudaStream_t stream, Marks& marks, const std::function<void()>& body) {
  Capture capture(stream);
  body();
  marks.join(stream);
  cudaGraph_t graph = capture.end();
  const cudaError_t result = cudaGraphInstantiate(&executable_, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(result, "make a graph ready");
}

void GraphRecordings::Graph::start(cudaStream_t stream) const {
  check_cuda(cudaGraphLaunch(executable_, stream), "start a graph");
}

GraphRecordings::Shape& GraphRecordings::find(std::int64_t shape) {
  const auto found =
      std::find_if(shapes_.begin(), shapes_.end(), [&](const Shape& s) { return s.shape == shape; });
  if (found != shapes_.end()) {
    shapes_.splice(shapes_.begin(), shapes_, found);
  } else {
    shapes_.emplace_front().shape = shape;
    if (shapes_.size() > max_shapes_) shapes_.pop_back();
  }
  return shapes_.front();
}

void GraphRecordings::run(std::int64_t shape, std::int64_t step, Stream stream,
                          const std::function<void()>& body) {
  auto* const queue = static_cast<cudaStream_t>(stream.handle());
  std::map<std::int64_t, Graph>& steps = find(shape).steps;
  const auto [entry, is_new] = steps.try_emplace(step);
  if (is_new) return body();
  Graph& graph = entry->second;
  if (graph.empty()) graph.capture(queue, marks_, body);
  graph.start(queue);
}

}  // namespace gemmad::cuda
