#include "daemon/model/generation/text_head.h"

#include <algorithm>
#include <cstring>

namespace gemmad {

namespace {

std::size_t matrix_bytes(std::int64_t rows, std::int64_t columns, DType dtype) {
  return TensorView{nullptr, dtype, {rows, columns}}.size_bytes();
}

}  // namespace

TextHead::TextHead(const TextConfig& config, const TextWeights& weights, const Place& place,
                   std::int64_t max_rows, Ops& ops)
    : vocab_size_(config.vocab_size),
      hidden_size_(config.hidden_size),
      table_(weights.embedding),
      place_(place),
      ops_(ops),
      max_rows_(ops.padded_rows(max_rows)) {
  if (place.stage != 0) return;
  const DType dtype = ops.compute_dtype();
  const std::size_t own_bytes = matrix_bytes(max_rows_, slice_rows(), dtype);
  const auto num_slices = static_cast<std::size_t>(place.slices.count);
  if (place.num_stages > 1) rows_ = Buffer(ops.memory(), matrix_bytes(max_rows_, hidden_size_, dtype));
  own_ = Buffer(ops.memory(), own_bytes);
  if (num_slices > 1) all_ = Buffer(ops.memory(), num_slices * own_bytes);
  if (!has_logits()) return;
  host_.resize(num_slices * own_bytes);
  pinned_ = ops.pin(host_);
  if (num_slices > 1) assembled_.resize(matrix_bytes(max_rows, vocab_size_, dtype));
}

/// As many everywhere, so that those of the last slices may overlap.
std::int64_t TextHead::slice_rows() const {
  return (vocab_size_ + place_.slices.count - 1) / place_.slices.count;
}

std::int64_t TextHead::slice_begin(int slice) const {
  return std::min(slice * slice_rows(), vocab_size_ - slice_rows());
}

void TextHead::run(ConstTensorView rows, std::int64_t num_rows, PartLinks& links) {
  const Stream stream = ops_.stream();
  const DType dtype = ops_.compute_dtype();
  if (place_.stage + 1 == place_.num_stages && place_.stage > 0) links.send_to_first(rows, stream);
  if (place_.stage > 0) return links.wait(stream);
  const std::int64_t padded = ops_.padded_rows(num_rows);
  if (place_.num_stages > 1) {
    const TensorView handed_back = rows_.view(dtype, {padded, hidden_size_});
    links.receive_from(place_.num_stages - 1, handed_back, stream);
    rows = handed_back;
  }

  const int count = place_.slices.count;
  ops_.unembed(rows, own_table(), own_.view(dtype, {padded, slice_rows()}), stream);
  // What fills up the rows stays here.
  TensorView result = own_.view(dtype, {num_rows, slice_rows()});
  if (count > 1) {
    const TensorView all = all_.view(dtype, {count, num_rows, slice_rows()});
    links.gather_over_slices(result, all, stream);
    result = all;
  }
  if (has_logits()) ops_.copy_to_host({host_.data(), dtype, result.shape}, result, stream);
  links.wait(stream);
  ops_.synchronize(stream);
  if (has_logits() && count > 1) assemble(num_rows);
}

ConstTensorView TextHead::own_table() const {
  const ConstTensorView& table = table_->view;
  const auto row_bytes = static_cast<std::int64_t>(table.size_bytes()) / table.shape[0];
  return {table.as<std::byte>() + slice_begin(place_.slices.own) * row_bytes,
          table.dtype,
          {slice_rows(), hidden_size_}};
}

void TextHead::tune() {
  if (place_.stage != 0) return;
  const DType dtype = ops_.compute_dtype();
  const Buffer x(ops_.memory(), matrix_bytes(max_rows_, hidden_size_, dtype));
  const ConstMatrixView table = own_table();
  for (std::int64_t rows = ops_.padded_rows(1); rows <= max_rows_; rows = ops_.padded_rows(rows + 1))
    ops_.tune_gemm(x.view(dtype, {rows, hidden_size_}), std::span(&table, 1),
                   own_.view(dtype, {rows, slice_rows()}), 0);
}

void TextHead::assemble(std::int64_t num_rows) {
  const auto element_bytes = static_cast<std::int64_t>(gemmad::size_bytes(ops_.compute_dtype()));
  const std::int64_t piece_bytes = slice_rows() * element_bytes;
  for (int slice = 0; slice < place_.slices.count; ++slice) {
    for (std::int64_t row = 0; row < num_rows; ++row) {
      std::memcpy(assembled_.data() + (row * vocab_size_ + slice_begin(slice)) * element_bytes,
                  host_.data() + (slice * num_rows + row) * piece_bytes,
                  static_cast<std::size_t>(piece_bytes));
    }
  }
}

ConstTensorView TextHead::logits(std::int64_t row) const {
  const std::vector<std::byte>& from = assembled_.empty() ? host_ : assembled_;
  const auto element_bytes = static_cast<std::int64_t>(gemmad::size_bytes(ops_.compute_dtype()));
  return {from.data() + row * vocab_size_ * element_bytes, ops_.compute_dtype(), Shape{vocab_size_}};
}

}  // namespace gemmad
