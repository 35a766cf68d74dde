// The weights of a vision tower and its projector on the device.
#pragma once

#include <cstdint>
#include <vector>

#include "config/vision_config.h"
#include "daemon/model/weight_filler.h"
#include "daemon/model/weight_source.h"
#include "kernels/ops.h"

namespace gemmad {

/// How the tower's projections are cut into heads on `device`: as many kv heads as heads, as wide as it likes
/// them. What that adds to a head is zero in every weight, so it changes no result.
HeadLayout vision_heads(const VisionConfig& config, const Device& device);

/// The columns of the weight of the patches: their width, filled up with zeros to a multiple of 8, which
/// products are best at.
std::int64_t padded_patch_width(const VisionConfig& config);

// Views into VisionWeights::memory, of the compute type.

struct VisionLayer {
  ConstTensorView norm1;       // [C]
  ConstTensorView norm1_bias;  // [C]
  ConstTensorView qkv;         // [3 H S, C], rows as HeadLayout cuts them
  ConstTensorView qkv_bias;    // [3 H S], likewise
  ConstTensorView out;         // [C, H S], columns head by head
  ConstTensorView out_bias;    // [C]
  ConstTensorView norm2;       // [C]
  ConstTensorView norm2_bias;  // [C]
  ConstTensorView up;          // [F, C]
  ConstTensorView up_bias;     // [F]
  ConstTensorView down;        // [C, F]
  ConstTensorView down_bias;   // [C]
};

/// Copies share its memory.
struct VisionWeights {
  HeadLayout heads;            // S may be more than the config's
  ConstTensorView patch;       // [C, padded_patch_width]
  ConstTensorView patch_bias;  // [C]
  ConstTensorView positions;   // [P, C]
  std::vector<VisionLayer> layers;
  ConstTensorView last_norm;       // [C]
  ConstTensorView last_norm_bias;  // [C]
  ConstTensorView projector_norm;  // [C]
  ConstTensorView projector;       // [D, C]
  WeightMemory memory;

  /// Bytes of device memory that there will be.
  static std::uint64_t size_bytes(const VisionConfig& config, const HeadLayout& heads, DType compute_dtype);
};

/// Puts the weights into `ops`' memory, in its compute type. `heads`: vision_heads(). Blocks until they are
/// there. `source` may go afterwards. Throws what `progress` and `source` throw, std::bad_alloc, OpError.
VisionWeights load_vision_weights(const WeightSource& source, const VisionConfig& config,
                                  const HeadLayout& heads, Ops& ops, const LoadProgress& progress);

}  // namespace gemmad
