#include "kernels/cuda/marks.h"

#include "kernels/cuda/check.h"

namespace gemmad::cuda {

void Marks::set(std::size_t number, cudaStream_t stream) {
  while (events_.size() <= number)
    events_.emplace_back();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  if (status == cudaStreamCaptureStatusNone)
    return check_cuda(cudaEventRecord(events_[number].get(), stream), "cudaEventRecord");
  check_cuda(cudaEventRecord(fork_.get(), stream), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(beside_.get(), fork_.get(), 0), "cudaStreamWaitEvent");
  check_cuda(cudaEventRecordWithFlags(events_[number].get(), beside_.get(), cudaEventRecordExternal),
             "cudaEventRecordWithFlags");
  is_forked_ = true;
}

void Marks::join(cudaStream_t stream) {
  if (!is_forked_) return;
  is_forked_ = false;
  check_cuda(cudaEventRecord(joint_.get(), beside_.get()), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(stream, joint_.get(), 0), "cudaStreamWaitEvent");
}

void Marks::wait(cudaStream_t waiting, std::size_t number) {
  if (number < events_.size())
    check_cuda(cudaStreamWaitEvent(waiting, events_[number].get(), 0), "cudaStreamWaitEvent");
}

}  // namespace gemmad::cuda
