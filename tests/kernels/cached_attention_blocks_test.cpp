// Chunks in slots of a whole number of blocks of 64 positions, which a device may attend block by block.
#include <algorithm>
#include <cmath>

#include "tests/kernels/cached_attention_testing.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

constexpr std::int64_t kBlock = 64;

// Of a ring that a window and a chunk of `most_rows` fit in; for all of `longest` without a window.
std::int64_t positions_for(std::int64_t window, std::int64_t longest, std::int64_t most_rows) {
  const std::int64_t least = window == 0 ? longest : window + most_rows - 1;
  return (least + kBlock - 1) / kBlock * kBlock;
}

// Rows [begin, end) see each other.
struct Image {
  std::int64_t begin;
  std::int64_t end;
};

struct Case {
  HeadLayout heads;
  std::vector<std::int64_t> chunks;
};

// Attends a sequence chunk by chunk. The whole reference would take long: the first row of each, the last and
// some between.
void check_chunks(const Case& of, std::int64_t window, const std::vector<Image>& images) {
  std::int64_t length = 0;
  for (const std::int64_t count : of.chunks)
    length += count;
  const std::int64_t most = *std::max_element(of.chunks.begin(), of.chunks.end());
  OpTesting testing;
  const AttentionParams params{of.heads, 1 / std::sqrt(static_cast<float>(of.heads.head_dim)), window};
  CachedSequences sequences(testing, params, positions_for(window, length, most), {length, 3});
  for (const Image& image : images)
    sequences.add_block(0, image.begin, image.end);
  std::int64_t position = 0;
  for (const std::int64_t count : of.chunks) {
    const std::vector<CacheRow> rows = rows_of(0, position, position + count);
    const std::vector<float> actual = sequences.pass(rows, true);
    REQUIRE(std::none_of(actual.begin(), actual.end(), [](float value) { return std::isnan(value); }));
    std::vector<CacheRow> some;
    std::vector<float> some_actual;
    const std::int64_t width = of.heads.q_width();
    for (std::int64_t n = 0; n < count; n += std::max<std::int64_t>(1, std::min(count - 1 - n, count / 6))) {
      some.push_back(rows[static_cast<std::size_t>(n)]);
      some_actual.insert(some_actual.end(), actual.begin() + n * width, actual.begin() + (n + 1) * width);
    }
    const Comparison result = sequences.compare(some_actual, some);
    CAPTURE(position, count);
    INFO(result.report);
    CHECK(result.ok);
    position += count;
  }
}

}  // namespace

TEST_CASE("attention of chunks in whole blocks of positions is attention of the whole sequence") {
  const HeadLayout heads = GENERATE(HeadLayout{4, 1, 64}, HeadLayout{4, 1, 256}, HeadLayout{8, 4, 128},
                                    HeadLayout{16, 8, 256}, HeadLayout{3, 3, 64}, HeadLayout{6, 2, 128});
  const std::int64_t window = GENERATE(0, 1, 50, 200);
  CAPTURE(heads.num_heads, heads.num_kv_heads, heads.head_dim, window);
  check_chunks({heads, {9, 1, 64, 130, 37, 16, 63, 65, 120, 31}}, window, {});
}

TEST_CASE("attention of chunks of many rows and heads is attention of the whole sequence") {
  // So many that a device makes its tiles larger, and larger still.
  const HeadLayout heads = GENERATE(HeadLayout{16, 16, 64}, HeadLayout{16, 16, 128}, HeadLayout{32, 16, 256},
                                    HeadLayout{64, 64, 64});
  const std::int64_t window = GENERATE(0, 300);
  CAPTURE(heads.num_heads, heads.num_kv_heads, heads.head_dim, window);
  check_chunks({heads, {10, 450, 500}}, window, {});
}

TEST_CASE("attention of chunks with images in whole blocks of positions sees all of each image") {
  const HeadLayout heads =
      GENERATE(HeadLayout{4, 1, 64}, HeadLayout{4, 2, 128}, HeadLayout{2, 1, 256}, HeadLayout{16, 16, 64});
  const std::int64_t window = GENERATE(0, 1, 25, 300);
  CAPTURE(heads.num_heads, heads.num_kv_heads, heads.head_dim, window);
  check_chunks({heads, {20, 300, 40, 480, 12}}, window,
               {{25, 281}, {281, 300}, {310, 311}, {400, 656}, {700, 840}});
}

TEST_CASE("attention of every row of chunks of every size in whole blocks matches double precision") {
  const std::int64_t count = GENERATE(9, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 129);
  const std::int64_t before = GENERATE(0, 1, 63, 64, 100);
  const std::int64_t window = GENERATE(0, 50);
  CAPTURE(count, before, window);
  OpTesting testing;
  const AttentionParams params{{2, 1, 64}, 0.125f, window};
  CachedSequences sequences(testing, params, positions_for(window, before + count, std::max(before, count)),
                            {before + count});
  if (before > 0) sequences.store(rows_of(0, 0, before), true);
  const std::vector<CacheRow> rows = rows_of(0, before, before + count);
  const Comparison result = sequences.compare(sequences.pass(rows, true), rows);
  INFO(result.report);
  CHECK(result.ok);
}

}  // namespace gemmad
