#include "kernels/cuda/staging.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cuda/slot_plan.h"

namespace gemmad::cuda {

namespace {
constexpr std::size_t kSlotBytes = 16u << 20;
constexpr std::size_t kNumSlots = 3;
constexpr std::size_t kPieceBytes = 256u << 10;  // that one thread fills at a time
}  // namespace

Staging::Staging(int num_threads) : pool_(num_threads) {
  for (std::size_t i = 0; i < kNumSlots; ++i)
    slots_.push_back({PinnedBuffer(kSlotBytes), OwnedEvent()});
}

void Staging::copy(TensorView dst, std::span<const ConstMatrixView> parts, cudaStream_t stream) {
  auto* to = dst.as<std::byte>();
  for (const SlotLoad& load : plan_slots(parts, size_bytes(dst.dtype), kSlotBytes, kPieceBytes)) {
    Slot& slot = slots_[next_];
    next_ = (next_ + 1) % slots_.size();
    check_cuda(cudaEventSynchronize(slot.sent.get()), "wait for a copy to the device");
    pool_.run(static_cast<std::int64_t>(load.pieces.size()), [&](std::int64_t index, int) {
      const SlotPiece& piece = load.pieces[static_cast<std::size_t>(index)];
      const Shape shape{piece.source.rows, piece.source.columns};
      cpu::convert_here({slot.buffer.data() + piece.offset_bytes, dst.dtype, shape}, piece.source);
    });
    check_cuda(cudaMemcpyAsync(to, slot.buffer.data(), load.size_bytes, cudaMemcpyHostToDevice, stream),
               "copy to the device");
    check_cuda(cudaEventRecord(slot.sent.get(), stream), "cudaEventRecord");
    to += load.size_bytes;
  }
}

}  // namespace gemmad::cuda
