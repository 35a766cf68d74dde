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

TensorView GroupLinks::addend(TensorView own, int which) {
  return peers_ ? peers_->own(which, own.dtype, own.shape) : own;
}

const PeerAddends* GroupLinks::sum_over_slices(TensorView addend, int which, Stream stream) {
  if (peers_) {
    addends_ = peers_->addends(which);
    return &addends_;
  }
  if (!slices_) return nullptr;
  const Stopwatch watch(time_);
  slices_->all_reduce(addend, stream);
  return nullptr;
}

void GroupLinks::receive(TensorView x, Stream stream) {
  const Stopwatch watch(time_);
  stages_->receive(x, place_ - 1, stream);
}

PartLinks::Slices GroupLinks::slices() const {
  return slices_ ? Slices{size_, place_} : Slices{};
}

void GroupLinks::gather_over_slices(ConstTensorView mine, TensorView all, Stream stream) {
  if (!slices_) return;
  const Stopwatch watch(time_);
  slices_->all_gather(mine, all, stream);
}

void GroupLinks::send_to_first(ConstTensorView x, Stream stream) {
  if (!stages_) return;
  const Stopwatch watch(time_);
  stages_->send(x, 0, stream);
}

void GroupLinks::receive_from(int last, TensorView x, Stream stream) {
  if (!stages_) return;
  const Stopwatch watch(time_);
  stages_->receive(x, last, stream);
}

void GroupLinks::wait(Stream stream) {
  if (slices_) slices_->wait(stream);
  if (stages_) stages_->wait(stream);
}

void GroupLinks::close() {
  if (peers_) peers_->close();
}

void GroupLinks::send(ConstTensorView x, Stream stream) {
  if (!stages_) return;
  const Stopwatch watch(time_);
  stages_->send(x, place_ + 1, stream);
}

}  // namespace gemmad
