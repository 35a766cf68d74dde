#include "kernels/cuda/staging.h"

#include <algorithm>

#include "kernels/cpu/kernels.h"

namespace gemmad::cuda {

namespace {
constexpr std::size_t kSlotBytes = 16u << 20;
constexpr std::size_t kNumSlots = 3;
}  // namespace

Staging::Staging(int num_threads) : pool_(num_threads) {
  for (std::size_t i = 0; i < kNumSlots; ++i)
    slots_.push_back({PinnedBuffer(kSlotBytes), OwnedEvent()});
}

void Staging::copy(TensorView dst, const ConstMatrixView& src, cudaStream_t stream) {
  const auto element_bytes = static_cast<std::int64_t>(size_bytes(dst.dtype));
  const auto per_slot = static_cast<std::int64_t>(kSlotBytes) / element_bytes;
  auto* to = dst.as<std::byte>();
  const auto put = [&](const ConstMatrixView& piece) {
    send(to, piece, dst.dtype, stream);
    to += piece.rows * piece.columns * element_bytes;
  };
  const std::int64_t rows_per_slot = src.columns > 0 ? per_slot / src.columns : src.rows;
  if (src.rows == 0 || src.columns == 0) return;
  if (rows_per_slot > 0) {
    for (std::int64_t row = 0; row < src.rows; row += rows_per_slot)
      put(src.row_range(row, std::min(src.rows, row + rows_per_slot)));
    return;
  }
  for (std::int64_t row = 0; row < src.rows; ++row) {
    for (std::int64_t column = 0; column < src.columns; column += per_slot) {
      put(src.row_range(row, row + 1).column_range(column, std::min(src.columns, column + per_slot)));
    }
  }
}

void Staging::send(std::byte* to, const ConstMatrixView& piece, DType dtype, cudaStream_t stream) {
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % slots_.size();
  check_cuda(cudaEventSynchronize(slot.sent.get()), "wait for a copy to the device");
  const TensorView staged{slot.buffer.data(), dtype, {piece.rows, piece.columns}};
  cpu::convert(pool_, staged, piece);
  check_cuda(cudaMemcpyAsync(to, staged.data, staged.size_bytes(), cudaMemcpyHostToDevice, stream),
             "copy to the device");
  check_cuda(cudaEventRecord(slot.sent.get(), stream), "cudaEventRecord");
}

}  // namespace gemmad::cuda
