// How the encoder of a part of the model works with the encoders of the other parts.
#pragma once

#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"

namespace gemmad {

/// The model is written against this; who the others are, only the implementation knows. Calls take effect in
/// the order of the stream and may wait for the others. Implementations throw what their transfers throw.
class PartLinks {
 public:
  virtual ~PartLinks() = default;
  /// `partial` [N, D] := its sum over all slices of the same layers.
  virtual void sum_over_slices(TensorView partial, Stream stream) = 0;
  /// Fills `x` [N, D] with the residual stream behind the layers before this part's.
  virtual void receive(TensorView x, Stream stream) = 0;
  /// Hands the residual stream to the part with the next layers.
  virtual void send(ConstTensorView x, Stream stream) = 0;
};

/// Of a part that is the whole model, or works as if it were: nothing to add, nobody before or behind.
class NoLinks final : public PartLinks {
 public:
  void sum_over_slices(TensorView, Stream) override {}
  void receive(TensorView, Stream) override {}
  void send(ConstTensorView, Stream) override {}
};

}  // namespace gemmad
