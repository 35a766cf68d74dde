#include "daemon/model/text_workspace.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "daemon/model/memory_cutter.h"
#include "daemon/model/rope_upload.h"

namespace gemmad {
namespace {

// A batch of so many rows is to have a place for each of its states, where work is recorded: it is then
// recorded as a whole.
constexpr std::int64_t kKeptRows = 256;

/// What the places depend on.
struct Sizes {
  ActivationWidths widths;
  std::int64_t hidden_size = 0;
  DType dtype = DType::kF32;
  std::int64_t max_rows = 0;
  std::int64_t state_rows = 0;
};

// Places of a batch's rows.
class Cutter : public MemoryCutter {
 public:
  Cutter(const Buffer* memory, std::int64_t max_rows, std::int64_t num_rows)
      : MemoryCutter(memory), max_rows_(max_rows), num_rows_(num_rows) {}

  TensorView row_of_each(DType dtype, std::int64_t width) {
    return place(dtype, max_rows_ * width, {num_rows_, width});
  }
  /// Not rounded up: the next one follows at once.
  TensorView number_of_each() {
    const std::size_t begin_bytes = end_bytes();
    const TensorView view = place(DType::kI32, max_rows_, {num_rows_});
    rewind(begin_bytes + TensorView{nullptr, DType::kI32, {max_rows_}}.size_bytes());
    return view;
  }

 private:
  std::int64_t max_rows_;
  std::int64_t num_rows_;
};

Activations cut_up(Cutter& cutter, const Sizes& sizes, std::int64_t num_places, std::int64_t num_rows) {
  const auto& [widths, hidden_size, dtype, max_rows, state_rows] = sizes;
  Activations a;
  a.ids = cutter.number_of_each();
  a.positions = cutter.number_of_each();
  a.begins = cutter.number_of_each();
  cutter.align();
  a.states = cutter.place(dtype, state_rows * hidden_size, {num_places, num_rows, hidden_size});
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

Sizes sizes_of(const TextConfig& config, const ActivationWidths& widths, const Ops& ops,
               std::int64_t max_batch_tokens) {
  Sizes sizes{widths, config.hidden_size, ops.compute_dtype(), ops.padded_rows(max_batch_tokens), 0};
  sizes.state_rows = 2 * sizes.max_rows;
  if (ops.records_work()) {
    sizes.state_rows =
        std::max(sizes.state_rows, (config.num_layers + 1) * std::min(sizes.max_rows, kKeptRows));
  }
  return sizes;
}

std::size_t bytes_of(const Sizes& sizes) {
  Cutter cutter(nullptr, sizes.max_rows, sizes.max_rows);
  cut_up(cutter, sizes, 2, sizes.max_rows);
  return cutter.most_bytes();
}

}  // namespace

TextWorkspace::TextWorkspace(const TextConfig& config, const ActivationWidths& widest, Ops& ops,
                             std::int64_t max_batch_tokens, std::int64_t padded_length)
    : hidden_size_(config.hidden_size),
      num_states_(config.num_layers + 1),
      dtype_(ops.compute_dtype()),
      max_batch_tokens_(max_batch_tokens),
      max_rows_(ops.padded_rows(max_batch_tokens)),
      padded_length_(padded_length) {
  if (max_batch_tokens < 1 || padded_length < 1) {
    throw std::invalid_argument("workspace: max_batch_tokens is " + std::to_string(max_batch_tokens) +
                                ", padded_length is " + std::to_string(padded_length) +
                                ", both must be positive");
  }
  const Sizes sizes = sizes_of(config, widest, ops, max_batch_tokens);
  state_rows_ = sizes.state_rows;
  memory_ = Buffer(ops.memory(), bytes_of(sizes));
  rope_shape_ = {padded_length, config.head_dim};
  rope_full_ = upload_rope_table(ops, config.rope_full, rope_shape_);
  rope_sliding_ = upload_rope_table(ops, config.rope_sliding, rope_shape_);
  host_inputs_.resize(static_cast<std::size_t>(3 * max_rows_));
}

std::int64_t TextWorkspace::num_places(std::int64_t num_rows) const {
  return num_states_ * num_rows <= state_rows_ ? num_states_ : 2;
}

Activations TextWorkspace::cut(const ActivationWidths& widths, std::int64_t num_rows) const {
  Cutter cutter(&memory_, max_rows_, num_rows);
  return cut_up(cutter, {widths, hidden_size_, dtype_, max_rows_, state_rows_}, num_places(num_rows),
                num_rows);
}

TensorView Activations::state(std::int64_t index) const {
  const Shape shape{states.shape[1], states.shape[2]};
  const TensorView place{states.data, states.dtype, shape};
  const auto offset = static_cast<std::size_t>(index % states.shape[0]) * place.size_bytes();
  return {states.as<std::byte>() + offset, states.dtype, shape};
}

ConstTensorView TextWorkspace::rope(LayerKind kind) const {
  return (kind == LayerKind::kSliding ? rope_sliding_ : rope_full_).view(dtype_, rope_shape_);
}

TensorView TextWorkspace::inputs() const {
  return memory_.view(DType::kI32, {3 * max_rows_});
}

std::uint64_t TextWorkspace::size_bytes(const TextConfig& config, const ActivationWidths& widest,
                                        const Ops& ops, std::int64_t max_batch_tokens,
                                        std::int64_t padded_length) {
  const TensorView table{nullptr, ops.compute_dtype(), {padded_length, config.head_dim}};
  return bytes_of(sizes_of(config, widest, ops, max_batch_tokens)) + 2 * table.size_bytes();
}

std::uint64_t TextWorkspace::size_bytes() const {
  return memory_.size_bytes() + rope_full_.size_bytes() + rope_sliding_.size_bytes();
}

}  // namespace gemmad
