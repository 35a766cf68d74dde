// How the encoder of a part of the model works with the encoders of the other parts.
#pragma once

#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"

namespace gemmad {

struct PeerAddends;  // kernels/base/peer_addends.h

/// The model is written against this; who the others are, only the implementation knows. Calls take effect in
/// the order of the stream and may wait for the others. Implementations throw what their transfers throw.
class PartLinks {
 public:
  virtual ~PartLinks() = default;
  /// Where this part's addend of a sum over all slices of the same layers is to be written, [N, D]: `own`, or
  /// memory that the others read. `which`, 0 or 1: two sums that follow one another have different ones.
  virtual TensorView addend(TensorView own, int which) = 0;
  /// `addend`, from addend(own, which), := the sum over all slices; or leaves that to the operation that
  /// reads it next, which needs what is returned for it. The result is valid until the next call.
  virtual const PeerAddends* sum_over_slices(TensorView addend, int which, Stream stream) = 0;
  /// Fills `x` [N, D] with the residual stream behind the layers before this part's.
  virtual void receive(TensorView x, Stream stream) = 0;
  /// Hands the residual stream to the part with the next layers.
  virtual void send(ConstTensorView x, Stream stream) = 0;
  /// How many parts hold slices of the same layers, this one included, and which of them it is.
  struct Slices {
    int count = 1;
    int own = 0;
  };
  virtual Slices slices() const { return {}; }
  /// `all` [slices, ...] := `mine` of all of them, slice after slice; `mine` is no part of `all`. Not where
  /// there is but one.
  virtual void gather_over_slices(ConstTensorView, TensorView, Stream) {}
  /// Hands `x` from the part with the last layers, number `last` of those one behind the other, to the one
  /// with the first.
  virtual void send_to_first(ConstTensorView, Stream) {}
  virtual void receive_from(int /*last*/, TensorView, Stream) {}
  /// Blocks until what the others have to do with the work on `stream` is done; throws when one of them is
  /// lost. This device's own work may go on.
  virtual void wait(Stream stream) = 0;
};

/// Of a part that is the whole model, or works as if it were: nothing to add, nobody before or behind.
class NoLinks final : public PartLinks {
 public:
  TensorView addend(TensorView own, int) override { return own; }
  const PeerAddends* sum_over_slices(TensorView, int, Stream) override { return nullptr; }
  void receive(TensorView, Stream) override {}
  void send(ConstTensorView, Stream) override {}
  void wait(Stream) override {}
};

}  // namespace gemmad
