#include "kernels/cuda/bf16.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/row_grid.h"

namespace gemmad::cuda {
namespace {

constexpr int kThreads = 256;

struct FillArgs {
  const Bf16* features;
  const std::int32_t* bounds;
  const Bf16* registers;
  Bf16* out;
  int length;  // rows of a sequence of `out`
  int num_registers;
  std::int64_t width;
};

/// One thread for Pack columns of a row; Pack divides the width.
template <int Pack>
__global__ void fill_rows(const FillArgs args) {
  let_next_start();
  wait_for_previous();
  const std::int64_t column = first_column<Pack>();
  if (column >= args.width) return;
  const int sequence = static_cast<int>(blockIdx.x) / args.length;
  const int position = static_cast<int>(blockIdx.x) % args.length;
  const int begin = args.bounds[sequence];
  const Bf16* from = position < args.bounds[sequence + 1] - begin
                         ? args.features + (std::int64_t{begin} + position) * args.width
                         : args.registers + std::int64_t{position % args.num_registers} * args.width;
  using Columns = Bf16Pack<Pack>;
  *reinterpret_cast<Columns*>(args.out + blockIdx.x * args.width + column) =
      *reinterpret_cast<const Columns*>(from + column);
}

}  // namespace

void fill_registers(ConstTensorView features, ConstTensorView bounds, ConstTensorView registers,
                    TensorView out, cudaStream_t stream) {
  const std::int64_t rows = out.shape[0];
  const std::int64_t width = out.shape[1];
  if (rows == 0 || width == 0) return;
  FillArgs args{};
  args.features = features.as<Bf16>();
  args.bounds = bounds.as<std::int32_t>();
  args.registers = registers.as<Bf16>();
  args.out = out.as<Bf16>();
  args.length = static_cast<int>(rows / (bounds.shape[0] - 1));
  args.num_registers = static_cast<int>(registers.shape[0]);
  args.width = width;
  const int pack = width % 8 == 0 && is_aligned({features.data, registers.data, out.data}) ? 8 : 1;
  launch("launch fill_registers", pack == 8 ? fill_rows<8> : fill_rows<1>,
         {row_grid(rows, width, pack, kThreads), dim3(kThreads)}, stream, args);
}

}  // namespace gemmad::cuda
