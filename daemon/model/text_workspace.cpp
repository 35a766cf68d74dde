#include "daemon/model/text_workspace.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/rope_table.h"

namespace gemmad {
namespace {

constexpr std::size_t kAlignmentBytes = 256;

// Hands out places for `max_tokens` tokens in one buffer, one after another; without a buffer only sizes are
// found.
class Cutter {
 public:
  Cutter(const Buffer* memory, std::int64_t max_tokens, std::int64_t num_tokens)
      : memory_(memory), max_tokens_(max_tokens), num_tokens_(num_tokens) {}

  TensorView row_of_each(DType dtype, std::int64_t width) {
    return place(dtype, width, {num_tokens_, width});
  }
  TensorView one_of_each(DType dtype) { return place(dtype, 1, {num_tokens_}); }

  std::size_t end_bytes() const { return end_bytes_; }
  void rewind(std::size_t end_bytes) { end_bytes_ = end_bytes; }
  std::size_t most_bytes() const { return most_bytes_; }

 private:
  TensorView place(DType dtype, std::int64_t width, const Shape& shape) {
    const std::size_t offset_bytes = end_bytes_;
    const std::size_t size_bytes = TensorView{nullptr, dtype, {max_tokens_, width}}.size_bytes();
    end_bytes_ += (size_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
    most_bytes_ = std::max(most_bytes_, end_bytes_);
    return memory_ != nullptr ? memory_->view(dtype, shape, offset_bytes) : TensorView{nullptr, dtype, shape};
  }

  const Buffer* memory_;
  std::int64_t max_tokens_;
  std::int64_t num_tokens_;
  std::size_t end_bytes_ = 0;
  std::size_t most_bytes_ = 0;
};

Activations cut_up(Cutter& cutter, const ActivationWidths& widths, std::int64_t hidden_size, DType dtype) {
  Activations a;
  a.ids = cutter.one_of_each(DType::kI32);
  a.positions = cutter.one_of_each(DType::kI32);
  a.x = cutter.row_of_each(dtype, hidden_size);
  a.normed = cutter.row_of_each(dtype, hidden_size);
  a.branch = cutter.row_of_each(dtype, hidden_size);
  const std::size_t shared = cutter.end_bytes();
  a.qkv = cutter.row_of_each(dtype, widths.heads.qkv_width());
  a.mixed = cutter.row_of_each(dtype, widths.heads.q_width());
  cutter.rewind(shared);
  a.gate_up = cutter.row_of_each(dtype, 2 * widths.ffn_width);
  a.gated = cutter.row_of_each(dtype, widths.ffn_width);
  return a;
}

Buffer upload_rope_table(Ops& ops, const RopeConfig& rope, const Shape& shape) {
  std::vector<float> table = make_rope_table(rope.theta, rope.factor, shape[1], shape[0]);
  const ConstTensorView host{table.data(), DType::kF32, shape};
  Buffer buffer(ops.memory(), TensorView{nullptr, ops.compute_dtype(), shape}.size_bytes());
  ops.upload(buffer.view(ops.compute_dtype(), shape), host, ops.stream());
  return buffer;
}

}  // namespace

TextWorkspace::TextWorkspace(const TextConfig& config, const ActivationWidths& widest, Ops& ops,
                             std::int64_t max_batch_tokens, std::int64_t padded_length)
    : hidden_size_(config.hidden_size),
      dtype_(ops.compute_dtype()),
      max_batch_tokens_(max_batch_tokens),
      padded_length_(padded_length) {
  if (max_batch_tokens < 1 || padded_length < 1) {
    throw std::invalid_argument("workspace: max_batch_tokens is " + std::to_string(max_batch_tokens) +
                                ", padded_length is " + std::to_string(padded_length) +
                                ", both must be positive");
  }
  Cutter sizes(nullptr, max_batch_tokens, max_batch_tokens);
  cut_up(sizes, widest, hidden_size_, dtype_);
  memory_ = Buffer(ops.memory(), sizes.most_bytes());
  rope_shape_ = {padded_length, config.head_dim};
  rope_full_ = upload_rope_table(ops, config.rope_full, rope_shape_);
  rope_sliding_ = upload_rope_table(ops, config.rope_sliding, rope_shape_);
  host_positions_.resize(static_cast<std::size_t>(max_batch_tokens));
}

Activations TextWorkspace::cut(const ActivationWidths& widths, std::int64_t num_tokens) const {
  Cutter cutter(&memory_, max_batch_tokens_, num_tokens);
  return cut_up(cutter, widths, hidden_size_, dtype_);
}

ConstTensorView TextWorkspace::rope(LayerKind kind) const {
  return (kind == LayerKind::kSliding ? rope_sliding_ : rope_full_).view(dtype_, rope_shape_);
}

std::uint64_t TextWorkspace::size_bytes() const {
  return memory_.size_bytes() + rope_full_.size_bytes() + rope_sliding_.size_bytes();
}

}  // namespace gemmad
