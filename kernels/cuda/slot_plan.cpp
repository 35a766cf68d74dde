#include "kernels/cuda/slot_plan.h"

#include <algorithm>

namespace gemmad::cuda {

namespace {

/// Fills one load after the other.
class Filler {
 public:
  Filler(std::size_t element_bytes, std::size_t slot_bytes)
      : element_bytes_(element_bytes),
        slot_elements_(static_cast<std::int64_t>(slot_bytes / element_bytes)) {}

  /// How many elements still fit the load at hand; a new one is begun where it is full.
  std::int64_t room() {
    if (loads_.empty() || filled_ == slot_elements_) {
      loads_.emplace_back();
      filled_ = 0;
    }
    return slot_elements_ - filled_;
  }
  void begin_new() { filled_ = slot_elements_; }

  void add(const ConstMatrixView& source) {
    loads_.back().pieces.push_back({source, static_cast<std::size_t>(filled_) * element_bytes_});
    filled_ += source.rows * source.columns;
    loads_.back().size_bytes = static_cast<std::size_t>(filled_) * element_bytes_;
  }

  std::vector<SlotLoad> take() { return std::move(loads_); }

 private:
  std::size_t element_bytes_;
  std::int64_t slot_elements_;
  std::int64_t filled_ = 0;
  std::vector<SlotLoad> loads_;
};

/// A row that is longer than a piece goes in runs of columns.
void add_long_row(Filler& filler, const ConstMatrixView& row, std::int64_t piece_elements) {
  for (std::int64_t column = 0; column < row.columns;) {
    const std::int64_t count = std::min({filler.room(), piece_elements, row.columns - column});
    filler.add(row.column_range(column, column + count));
    column += count;
  }
}

}  // namespace

std::vector<SlotLoad> plan_slots(std::span<const ConstMatrixView> parts, std::size_t element_bytes,
                                 std::size_t slot_bytes, std::size_t piece_bytes) {
  Filler filler(element_bytes, slot_bytes);
  const auto piece_elements =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(std::min(piece_bytes, slot_bytes) / element_bytes));
  for (const ConstMatrixView& part : parts) {
    if (part.columns == 0) continue;
    for (std::int64_t row = 0; row < part.rows;) {
      if (part.columns > piece_elements) {
        add_long_row(filler, part.row_range(row, row + 1), piece_elements);
        ++row;
        continue;
      }
      const std::int64_t fitting = filler.room() / part.columns;
      if (fitting == 0) {  // what is left of the load stays empty: a row is not cut
        filler.begin_new();
        continue;
      }
      const std::int64_t count = std::min({fitting, piece_elements / part.columns, part.rows - row});
      filler.add(part.row_range(row, row + count));
      row += count;
    }
  }
  return filler.take();
}

}  // namespace gemmad::cuda
