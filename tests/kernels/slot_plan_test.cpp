#include "kernels/cuda/slot_plan.h"

#include <cstring>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

using Values = std::vector<std::uint16_t>;

/// What arrives when every load is copied after the one before it.
Values carried(std::span<const ConstMatrixView> parts, std::size_t slot_bytes, std::size_t piece_bytes) {
  Values arrived;
  for (const cuda::SlotLoad& load : cuda::plan_slots(parts, 2, slot_bytes, piece_bytes)) {
    REQUIRE(load.size_bytes <= slot_bytes);
    Values slot(load.size_bytes / 2, 0xffff);
    std::size_t filled = 0;
    for (const cuda::SlotPiece& piece : load.pieces) {
      REQUIRE(piece.offset_bytes == filled);
      for (std::int64_t row = 0; row < piece.source.rows; ++row) {
        std::memcpy(reinterpret_cast<std::byte*>(slot.data()) + filled,
                    piece.source.as<std::uint16_t>() + row * piece.source.row_stride,
                    static_cast<std::size_t>(piece.source.columns) * 2);
        filled += static_cast<std::size_t>(piece.source.columns) * 2;
      }
    }
    REQUIRE(filled == load.size_bytes);
    arrived.insert(arrived.end(), slot.begin(), slot.end());
  }
  return arrived;
}

}  // namespace

TEST_CASE("Parts on top of each other arrive in order, whatever the sizes of buffers and pieces") {
  constexpr std::int64_t kRows = 40;
  constexpr std::int64_t kColumns = 70;
  Values whole(kRows * kColumns);
  for (std::size_t i = 0; i < whole.size(); ++i)
    whole[i] = static_cast<std::uint16_t>(i);
  const ConstMatrixView all{whole.data(), DType::kBF16, kRows, kColumns, kColumns};
  const std::vector<ConstMatrixView> parts = {all.row_range(3, 9),
                                              all.row_range(20, 20),
                                              all.row_range(0, 1).column_range(5, 40),
                                              all.column_range(0, 0),
                                              all.column_range(69, 70),
                                              all,
                                              all.row_range(30, 40).column_range(10, 60)};
  Values expected;
  for (const ConstMatrixView& part : parts) {
    for (std::int64_t row = 0; row < part.rows; ++row) {
      const std::uint16_t* from = part.as<std::uint16_t>() + row * part.row_stride;
      expected.insert(expected.end(), from, from + part.columns);
    }
  }
  const std::size_t slot_bytes = GENERATE(2, 6, 138, 140, 142, 1000, 4096, 1 << 20);
  const std::size_t piece_bytes = GENERATE(2, 20, 140, 300, 1 << 20);
  CAPTURE(slot_bytes, piece_bytes);
  CHECK(carried(parts, slot_bytes, piece_bytes) == expected);
}

TEST_CASE("Many small parts share a buffer") {
  const Values whole(64 * 100);
  const ConstMatrixView all{whole.data(), DType::kBF16, 64, 100, 100};
  std::vector<ConstMatrixView> parts;
  for (std::int64_t row = 0; row < 64; ++row)
    parts.push_back(all.row_range(row, row + 1));
  CHECK(cuda::plan_slots(parts, 2, 64 * 200, 1 << 20).size() == 1);
  CHECK(cuda::plan_slots(parts, 2, 16 * 200, 1 << 20).size() == 4);
}

TEST_CASE("Nothing needs no buffer") {
  CHECK(cuda::plan_slots({}, 2, 100, 100).empty());
  const ConstMatrixView none{nullptr, DType::kBF16, 0, 5, 5};
  CHECK(cuda::plan_slots(std::span(&none, 1), 2, 100, 100).empty());
}

}  // namespace gemmad
