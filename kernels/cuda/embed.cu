#include "kernels/cuda/bf16.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"

namespace gemmad::cuda {
namespace {

/// One block a row. Pack divides the width.
template <int Pack>
__global__ void embed_rows(const std::int32_t* ids, const Bf16* table, float scale, Bf16* out,
                           std::int64_t width) {
  wait_for_previous();
  let_next_start();
  const Bf16* from = table + ids[blockIdx.x] * width;
  Bf16* to = out + blockIdx.x * width;
  for (std::int64_t i = Pack * threadIdx.x; i < width; i += Pack * blockDim.x) {
    float values[Pack];
    load(from + i, values);
    for (float& value : values)
      value *= scale;
    store(values, to + i);
  }
}

}  // namespace

void embed(ConstTensorView ids, ConstTensorView table, float scale, TensorView out, cudaStream_t stream) {
  const std::int64_t rows = ids.shape[0];
  const std::int64_t width = table.shape[1];
  if (rows == 0 || width == 0) return;
  const float bf16_scale = __bfloat162float(__float2bfloat16_rn(scale));
  launch("launch embed", width % 8 == 0 ? embed_rows<8> : embed_rows<1>,
         {dim3(static_cast<unsigned>(rows)), dim3(256)}, stream, ids.as<std::int32_t>(), table.as<Bf16>(),
         bf16_scale, out.as<Bf16>(), width);
}

}  // namespace gemmad::cuda
