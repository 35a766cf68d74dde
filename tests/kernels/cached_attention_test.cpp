// Keys and values that stay from pass to pass: what comes of them is attention of the whole sequence.
#include "tests/kernels/cached_attention_testing.h"

#include <algorithm>
#include <cmath>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

float scale_of(const HeadLayout& heads) {
  return 1 / std::sqrt(static_cast<float>(heads.head_dim));
}

HeadLayout any_heads() {
  return GENERATE(HeadLayout{4, 1, 256}, HeadLayout{8, 4, 256}, HeadLayout{16, 8, 256}, HeadLayout{4, 1, 64},
                  HeadLayout{8, 4, 64}, HeadLayout{8, 4, 128}, HeadLayout{16, 8, 128}, HeadLayout{1, 1, 64},
                  HeadLayout{2, 1, 12}, HeadLayout{3, 3, 36});
}

void check_pass(CachedSequences& sequences, const std::vector<CacheRow>& rows, bool is_chunk) {
  const Comparison result = sequences.compare(sequences.pass(rows, is_chunk), rows);
  CAPTURE(rows.size(), rows.front().sequence, rows.front().position, is_chunk);
  INFO(result.report);
  CHECK(result.ok);
}

// Positions for all of `longest`, or a ring that a window and a chunk of `most_rows` at once just fit in.
std::int64_t positions_for(std::int64_t window, std::int64_t longest, std::int64_t most_rows) {
  return window == 0 ? longest : std::min(longest, window + most_rows - 1);
}

}  // namespace

TEST_CASE("store_kv puts keys, then values, head by head, at the place of slot and position") {
  OpTesting testing;
  const HeadLayout heads = GENERATE(HeadLayout{4, 1, 64}, HeadLayout{8, 4, 64}, HeadLayout{2, 2, 256},
                                    HeadLayout{16, 8, 128}, HeadLayout{2, 1, 12}, HeadLayout{3, 3, 36});
  const bool is_chunk = GENERATE(false, true);
  CAPTURE(heads.num_heads, heads.num_kv_heads, heads.head_dim, is_chunk);
  constexpr std::int64_t kPositions = 10;
  CachedSequences sequences(testing, {heads, 1, 0}, kPositions, {40, 40});
  std::vector<CacheRow> rows = rows_of(0, 7, 16);  // over the ring's end
  if (!is_chunk) rows = {{1, 3}, {-1, 5}, {0, 39}, {0, 20}, {-1, -1}, {1, 19}, {0, 11}};
  std::vector<float> expected = sequences.cache();
  for (const CacheRow& row : rows) {
    if (row.sequence < 0) continue;
    const float* const from = sequences.qkv(row.sequence).data() + row.position * heads.qkv_width();
    float* to = expected.data() + (sequences.slot_of(row.sequence) * kPositions + row.position % kPositions) *
                                      2 * heads.kv_width();
    for (std::int64_t head = 0; head < heads.num_kv_heads; ++head, to += heads.head_dim) {
      std::copy_n(from + heads.k_column(head), heads.head_dim, to);
      std::copy_n(from + heads.v_column(head), heads.head_dim, to + heads.kv_width());
    }
  }
  sequences.store(rows, is_chunk);
  const std::vector<float> actual = sequences.cache();
  const auto same = [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  CHECK(std::equal(actual.begin(), actual.end(), expected.begin(), expected.end(), same));
}

TEST_CASE("attention of sequences that grow by a row each a pass is attention of each whole sequence") {
  const HeadLayout heads = any_heads();
  const std::int64_t window = GENERATE(0, 1, 16);
  CAPTURE(heads.num_heads, heads.num_kv_heads, heads.head_dim, window);
  OpTesting testing;
  // They begin at different passes, and one leaves before the others do; the ring goes around twice and more.
  const std::vector<std::int64_t> lengths = {40, 9, 33};
  const std::vector<std::int64_t> begins = {0, 5, 11};
  CachedSequences sequences(testing, {heads, scale_of(heads), window}, positions_for(window, 40, 1), lengths);
  for (std::int64_t pass = 0; pass < 44; ++pass) {
    std::vector<CacheRow> rows;
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      const std::int64_t position = pass - begins[s];
      const bool is_in = position >= 0 && position < lengths[s];
      rows.push_back({is_in ? static_cast<std::int64_t>(s) : -1, position});
    }
    check_pass(sequences, rows, false);
  }
}

TEST_CASE("attention of chunks and of what follows them is attention of the whole sequence") {
  const HeadLayout heads = any_heads();
  const std::int64_t window = GENERATE(0, 30, 150);
  const bool is_chunk = GENERATE(false, true);
  CAPTURE(heads.num_heads, heads.num_kv_heads, heads.head_dim, window, is_chunk);
  OpTesting testing;
  constexpr std::int64_t kLength = 301;
  CachedSequences sequences(testing, {heads, scale_of(heads), window}, positions_for(window, kLength, 130),
                            {kLength, 20});
  std::int64_t position = 0;
  for (const std::int64_t count : {1, 2, 31, 130, 1, 64, 65, 7}) {
    // The whole reference would take long: the first row, the last and some between.
    const std::vector<CacheRow> rows = rows_of(0, position, position + count);
    const std::vector<float> actual = sequences.pass(rows, is_chunk);
    std::vector<CacheRow> some;
    std::vector<float> some_actual;
    for (std::int64_t n = 0; n < count; n += std::max<std::int64_t>(1, std::min(count - 1 - n, count / 5))) {
      some.push_back(rows[static_cast<std::size_t>(n)]);
      some_actual.insert(some_actual.end(), actual.begin() + n * heads.q_width(),
                         actual.begin() + (n + 1) * heads.q_width());
    }
    const Comparison result = sequences.compare(some_actual, some);
    CAPTURE(position, count);
    INFO(result.report);
    CHECK(result.ok);
    position += count;
  }
}

TEST_CASE("attention of every row of chunks of every size around blocks matches double precision") {
  const std::int64_t count = GENERATE(1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 130);
  const std::int64_t before = GENERATE(0, 1, 63, 64, 100);
  const std::int64_t window = GENERATE(0, 50);
  CAPTURE(count, before, window);
  OpTesting testing;
  const HeadLayout heads{2, 1, 64};
  CachedSequences sequences(testing, {heads, scale_of(heads), window},
                            positions_for(window, before + count, std::max(before, count)), {before + count});
  if (before > 0) sequences.store(rows_of(0, 0, before), true);
  check_pass(sequences, rows_of(0, before, before + count), true);
}

TEST_CASE("attention of chunks with an image sees all of the image, within any window") {
  const HeadLayout heads =
      GENERATE(HeadLayout{4, 1, 64}, HeadLayout{2, 1, 256}, HeadLayout{4, 2, 128}, HeadLayout{3, 3, 36});
  const std::int64_t window = GENERATE(0, 1, 25, 80);
  const bool is_chunk = GENERATE(false, true);
  CAPTURE(heads.num_heads, heads.head_dim, window, is_chunk);
  OpTesting testing;
  CachedSequences sequences(testing, {heads, scale_of(heads), window}, positions_for(window, 170, 90), {170});
  sequences.add_block(0, 35, 99);
  sequences.add_block(0, 99, 100);
  sequences.add_block(0, 130, 160);
  check_pass(sequences, rows_of(0, 0, 30), is_chunk);
  check_pass(sequences, rows_of(0, 30, 120), is_chunk);
  check_pass(sequences, rows_of(0, 120, 160), is_chunk);
  for (std::int64_t position = 160; position < 170; ++position)
    check_pass(sequences, rows_of(0, position, position + 1), is_chunk);
}

TEST_CASE("attention over thousands of positions matches double precision") {
  const HeadLayout heads = GENERATE(HeadLayout{4, 1, 256}, HeadLayout{4, 2, 64});
  const std::int64_t window = GENERATE(0, 512, 1024);
  const int num_threads = GENERATE(1, 3);
  CAPTURE(heads.head_dim, window, num_threads);
  OpTesting testing(num_threads);
  constexpr std::int64_t kLength = 4096;
  constexpr std::int64_t kChunk = 300;
  CachedSequences sequences(testing, {heads, scale_of(heads), window}, positions_for(window, kLength, kChunk),
                            {kLength, 2500});
  for (std::int64_t begin = 0; begin < kLength - 1; begin += kChunk)
    sequences.store(rows_of(0, begin, std::min(begin + kChunk, kLength - 1)), true);
  for (std::int64_t begin = 0; begin < 2499; begin += kChunk)
    sequences.store(rows_of(1, begin, std::min<std::int64_t>(begin + kChunk, 2499)), true);
  check_pass(sequences, {{1, 2499}, {-1, 0}, {0, kLength - 1}}, false);
  const std::vector<CacheRow> chunk = rows_of(0, kLength - kChunk, kLength);
  const std::vector<float> actual = sequences.attend(chunk, true);
  const auto last = actual.end() - heads.q_width();
  const Comparison result = sequences.compare({last, actual.end()}, {chunk.back()});
  INFO(result.report);
  CHECK(result.ok);
}

TEST_CASE("attention of several sequences with rows at any of their positions matches double precision") {
  const HeadLayout heads = GENERATE(HeadLayout{4, 1, 64}, HeadLayout{4, 2, 256}, HeadLayout{2, 1, 12});
  const std::int64_t window = GENERATE(0, 20);
  CAPTURE(heads.head_dim, window);
  OpTesting testing(3);
  CachedSequences sequences(testing, {heads, scale_of(heads), window}, positions_for(window, 90, 40),
                            {90, 60, 31});
  sequences.store(rows_of(0, 0, 30), true);
  sequences.store(rows_of(1, 0, 40), true);
  std::vector<CacheRow> rows = rows_of(0, 30, 50);
  rows.insert(rows.begin() + 7, {{-1, 0}, {1, 40}, {2, 0}, {2, 1}});
  rows.insert(rows.begin() + 20, {{1, 41}, {-1, 0}, {-1, 0}, {2, 2}});
  check_pass(sequences, rows, false);
}

TEST_CASE("attention from the cache stands scores far apart") {
  OpTesting testing;
  const AttentionParams params{{2, 1, 64}, 1.0f, GENERATE(0, 64)};
  CachedSequences sequences(testing, params, 300, {300}, 6.0f);
  check_pass(sequences, rows_of(0, 0, 150), true);
  check_pass(sequences, rows_of(0, 150, 299), false);
  check_pass(sequences, {{0, 299}}, false);
}

TEST_CASE("attention from the cache sees exactly the positions up to the row's end") {
  // Equal scores: the output is the mean of the visible values. Value n is 1 at n % 64, so that each column
  // counts a few keys.
  OpTesting testing;
  const HeadLayout heads{2, 1, 64};
  const std::int64_t window = GENERATE(0, 1, 40, 65);
  const bool is_chunk = GENERATE(false, true);
  CAPTURE(window, is_chunk);
  constexpr std::int64_t kRows = 200;
  constexpr std::int64_t kPositions = 210;
  std::vector<float> qkv(static_cast<std::size_t>(kRows * heads.qkv_width()), 0.0f);
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> ends;
  std::vector<double> expected;
  for (std::int64_t n = 0; n < kRows; ++n)
    qkv[static_cast<std::size_t>(n * heads.qkv_width() + heads.v_column(0) + n % 64)] = 1.0f;
  for (std::int64_t n = 0; n < kRows; ++n) {
    positions.push_back(static_cast<std::int32_t>(n));
    ends.push_back(static_cast<std::int32_t>(std::min(kRows, (n + 13) / 13 * 13)));
    const std::int64_t first = window == 0 ? 0 : std::max<std::int64_t>(0, n - window + 1);
    append_attention_row(qkv, n, {first, ends.back()}, {heads, 1, window}, expected);
  }
  const DeviceTensor slots = testing.put(std::vector<std::int32_t>(kRows, 0));
  const DeviceTensor device_positions = testing.put(positions);
  const DeviceTensor device_ends = testing.put(ends);
  const CacheRows rows{slots.view, device_positions.view, device_ends.view, is_chunk};
  const DeviceTensor in = testing.put(qkv, {kRows, heads.qkv_width()});
  const DeviceTensor out = testing.empty({kRows, heads.q_width()});
  const DeviceTensor cache =
      testing.put(std::vector<float>(kPositions * 128, NAN), {1, kPositions, 2 * heads.kv_width()});
  testing.ops().store_kv(in.view, heads, rows, cache.view, testing.stream());
  testing.ops().attention_cached(in.view, rows, cache.view, {heads, 1, window}, out.view, testing.stream());
  const std::vector<float> actual = testing.get(out.view);
  const Comparison result = compare_elements({actual.data(), DType::kF32, {kRows, heads.q_width()}}, expected,
                                             1e-7, 1e-5 + testing.rounding());
  INFO(result.report);
  CHECK(result.ok);
}

TEST_CASE("Rows of no sequence leave the cache alone and give zeros, all of them too") {
  OpTesting testing;
  const HeadLayout heads{4, 2, 64};
  const bool is_chunk = GENERATE(false, true);
  CachedSequences sequences(testing, {heads, scale_of(heads), 0}, 8, {8});
  const std::vector<CacheRow> nothing = {{-1, 0}, {-1, -7}, {-1, 1 << 30}};
  const std::vector<float> out = sequences.pass(nothing, is_chunk);
  CHECK(out == std::vector<float>(static_cast<std::size_t>(3 * heads.q_width()), 0.0f));
  const std::vector<float> cache = sequences.cache();
  CHECK(std::all_of(cache.begin(), cache.end(), [](float value) { return std::isnan(value); }));
}

TEST_CASE("No rows at all are stored and attended") {
  OpTesting testing;
  CachedSequences sequences(testing, {{4, 2, 64}, 1, 0}, 8, {8});
  CHECK(sequences.pass({}, false).empty());
}

TEST_CASE("attention from the cache gives the same bytes every time, with any number of threads") {
  const AttentionParams params{{8, 4, 64}, 0.125f, GENERATE(0, 64)};
  std::vector<std::vector<float>> results;
  for (const int num_threads : {1, 3, 3}) {
    OpTesting testing(num_threads);
    CachedSequences sequences(testing, params, 300, {300, 100});
    sequences.store(rows_of(0, 0, 150), true);
    std::vector<float> result = sequences.pass(rows_of(0, 150, 299), true);
    const std::vector<float> next = sequences.pass({{0, 299}, {1, 0}}, false);
    result.insert(result.end(), next.begin(), next.end());
    CHECK((sequences.attend({{0, 299}, {1, 0}}, false) == next));
    results.push_back(result);
  }
  CHECK((results[0] == results[1]));
  CHECK((results[0] == results[2]));
}

}  // namespace gemmad
