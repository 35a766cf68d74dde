// Work recorded as CUDA graphs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <list>
#include <map>

#include "kernels/cuda/marks.h"
#include "kernels/device.h"

namespace gemmad::cuda {

/// Calls a body the first time, which loads what its kernels need; captures it the second time; repeats the
/// graph from then on. Keeps the graphs of `max_shapes` shapes, the last used.
class GraphRecordings final : public Recordings {
 public:
  /// `marks`: those that bodies set; must outlive this.
  GraphRecordings(std::size_t max_shapes, Marks& marks) : max_shapes_(max_shapes), marks_(marks) {}

  /// Throws CudaError when capturing fails: `body` did what no graph can hold.
  void run(std::int64_t shape, std::int64_t step, Stream stream, const std::function<void()>& body) override;

 private:
  /// Owns a graph that can be started; empty until there is one.
  class Graph {
   public:
    Graph() = default;
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;
    ~Graph();
    void capture(cudaStream_t stream, Marks& marks, const std::function<void()>& body);
    bool empty() const { return executable_ == nullptr; }
    void start(cudaStream_t stream) const;

   private:
    cudaGraphExec_t executable_ = nullptr;
  };
  struct Shape {
    std::int64_t shape = 0;
    std::map<std::int64_t, Graph> steps;
  };

  Shape& find(std::int64_t shape);

  std::size_t max_shapes_;
  Marks& marks_;
  std::list<Shape> shapes_;  // the last used first
};

}  // namespace gemmad::cuda
