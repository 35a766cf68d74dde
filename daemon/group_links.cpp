#include "daemon/group_links.h"

namespace gemmad {

namespace {

/// Adds the time of its life to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(std::chrono::steady_clock::duration& sum) : sum_(sum) {}
  ~Stopwatch() { sum_ += std::chrono::steady_clock::now() - start_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::chrono::steady_clock::duration& sum_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

void GroupLinks::sum_over_slices(TensorView partial, Stream stream) {
  if (!slices_) return;
  const Stopwatch watch(time_);
  slices_->all_reduce(partial, stream);
}

void GroupLinks::receive(TensorView x, Stream stream) {
  const Stopwatch watch(time_);
  stages_->receive(x, stage_ - 1, stream);
}

void GroupLinks::send(ConstTensorView x, Stream stream) {
  if (!stages_) return;
  const Stopwatch watch(time_);
  stages_->send(x, stage_ + 1, stream);
}

}  // namespace gemmad
