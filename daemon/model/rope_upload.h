// Tables of rotary positions on the device.
#pragma once

#include <vector>

#include "config/model_config.h"
#include "kernels/ops.h"
#include "kernels/rope_table.h"

namespace gemmad {

/// The table of make_rope_table in the compute type. shape [P, S]. Blocks.
inline Buffer upload_rope_table(Ops& ops, const RopeConfig& rope, const Shape& shape) {
  const std::vector<float> table = make_rope_table(rope.theta, rope.factor, shape[1], shape[0]);
  Buffer buffer(ops.memory(), TensorView{nullptr, ops.compute_dtype(), shape}.size_bytes());
  ops.upload(buffer.view(ops.compute_dtype(), shape), {table.data(), DType::kF32, shape}, ops.stream());
  return buffer;
}

}  // namespace gemmad
