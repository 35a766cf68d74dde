// Gemma 3's eyes: a SigLIP tower and its projector, from an image's patches to what stands for them in a
// prompt.
#pragma once

#include <cstddef>
#include <cstdint>

#include "config/vision_config.h"
#include "daemon/model/memory_cutter.h"
#include "daemon/model/vision/vision_weights.h"
#include "kernels/ops.h"

namespace gemmad {

/// One image at a time: begin(), then step() until it returns true, then features(). All work is put on
/// ops.stream(); nothing blocks. Owns its weights, shared with their other holders, and the memory that it
/// works in: about the activations of one layer. Used by one thread.
class VisionTower {
 public:
  /// Layers of a step.
  static constexpr std::int64_t kLayersAtOnce = 3;

  /// `weights` are `config`'s. Keeps a reference to `ops`. Throws std::bad_alloc.
  VisionTower(const VisionConfig& config, VisionWeights weights, Ops& ops);

  /// Takes an image, in place of any other: `patches` [P, patch_width] F32 on the host, those of the grid row
  /// by row, each colour by colour, each of these row by row. They are rounded to the compute type and may go
  /// on return. Throws std::invalid_argument for another shape or type.
  void begin(ConstTensorView patches);

  /// Puts the work of the next layers on the stream; the last time, that of the projector too. Returns
  /// whether that was the last of it. Throws std::logic_error when there is no more.
  bool step();

  /// [T, D] of the compute type, in place of embeddings, without their scale: to be read by work on the
  /// stream. Valid until begin(). Throws std::logic_error before the last step.
  ConstTensorView features() const;

  const VisionConfig& config() const { return config_; }
  const VisionWeights& weights() const { return weights_; }

  /// Device memory that a tower works in, its weights not counted.
  static std::uint64_t size_bytes(const VisionConfig& config, const Ops& ops);

 private:
  /// Places in memory_. Those of a step share theirs with those of others.
  struct Places {
    TensorView begins;    // [P] I32, as Ops::attention takes them
    TensorView ends;      // [P] I32, likewise
    TensorView features;  // [T, D]
    TensorView h;         // [P, C], the residual stream
    TensorView normed;    // [P, C]
    TensorView patches;   // [P, padded_patch_width]
    TensorView qkv;       // [P, 3 H S]
    TensorView mixed;     // [P, H S]
    TensorView fed;       // [P, F]
    TensorView pooled;    // [T, C]
  };
  static Places cut_up(MemoryCutter& cutter, const VisionConfig& config, const HeadLayout& heads,
                       DType dtype);
  static std::size_t bytes_of(const VisionConfig& config, const HeadLayout& heads, DType dtype);

  void upload_spans();
  void run_layer(const VisionLayer& layer);
  void project();

  VisionConfig config_;
  VisionWeights weights_;
  Ops& ops_;
  Buffer memory_;
  Places places_;
  std::int64_t next_layer_ = 0;
  bool has_image_ = false;
};

}  // namespace gemmad
