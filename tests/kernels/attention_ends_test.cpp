// Attention of rows that see what comes after them: whole sequences, and images within a text.
#include <algorithm>
#include <cmath>
#include <random>

#include "tests/kernels/attention_testing.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

struct Block {
  std::int64_t begin;
  std::int64_t end;
};

// Causal but for blocks, whose rows see the whole block.
HostSpans with_blocks(const std::vector<std::int64_t>& offsets, const std::vector<Block>& blocks) {
  HostSpans spans = causal_spans(offsets);
  for (std::int64_t n = 0; n < spans.num_rows(); ++n)
    spans.ends.push_back(static_cast<std::int32_t>(n + 1));
  for (const Block& block : blocks)
    std::fill(spans.ends.begin() + block.begin, spans.ends.begin() + block.end,
              static_cast<std::int32_t>(block.end));
  return spans;
}

// Every row sees all of its sequence.
HostSpans whole_sequences(const std::vector<std::int64_t>& offsets) {
  std::vector<Block> blocks;
  for (std::size_t b = 0; b + 1 < offsets.size(); ++b)
    blocks.push_back({offsets[b], offsets[b + 1]});
  return with_blocks(offsets, blocks);
}

// Any ends that rise.
HostSpans with_random_ends(const std::vector<std::int64_t>& offsets, std::uint64_t seed) {
  HostSpans spans = causal_spans(offsets);
  std::mt19937_64 random(seed);
  for (std::size_t b = 0; b + 1 < offsets.size(); ++b) {
    std::int64_t end = offsets[b];
    for (std::int64_t n = offsets[b]; n < offsets[b + 1]; ++n) {
      end = std::max(end, n + 1);
      if (random() % 8 == 0) end += static_cast<std::int64_t>(random() % 90);
      end = std::min(end, offsets[b + 1]);
      spans.ends.push_back(static_cast<std::int32_t>(end));
    }
  }
  return spans;
}

void check(const HostSpans& spans, const AttentionParams& params, float size = 1.0f, int num_threads = 2,
           std::int64_t times = 1) {
  const Comparison result = compare_attention(spans, params, size, num_threads, times);
  INFO(result.report);
  CHECK(result.ok);
}

float scale_of(const HeadLayout& heads) {
  return 1 / std::sqrt(static_cast<float>(heads.head_dim));
}

HeadLayout any_heads() {
  return GENERATE(HeadLayout{1, 1, 32}, HeadLayout{3, 3, 32}, HeadLayout{4, 2, 32}, HeadLayout{2, 2, 64},
                  HeadLayout{4, 1, 64}, HeadLayout{3, 3, 128}, HeadLayout{8, 2, 128}, HeadLayout{1, 1, 256},
                  HeadLayout{4, 2, 256});
}

// So many that a GPU, with some hundred rows, takes its largest tiles: in each size of head, as many as make
// it share a tile among thread blocks (the first), and as many as do not.
struct ManyHeads {
  HeadLayout heads;
  std::int64_t times;
};

ManyHeads many_heads() {
  return GENERATE(ManyHeads{{2, 2, 64}, 8}, ManyHeads{{2, 2, 64}, 28}, ManyHeads{{2, 2, 128}, 8},
                  ManyHeads{{2, 2, 128}, 28});
}

}  // namespace

TEST_CASE("attention over whole sequences matches double precision at every length around its blocks") {
  const std::int64_t length = GENERATE(1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 257, 513);
  const HeadLayout heads = GENERATE(HeadLayout{2, 2, 64}, HeadLayout{1, 1, 128}, HeadLayout{4, 1, 64});
  CAPTURE(length, heads.num_kv_heads, heads.head_dim);
  check(whole_sequences({0, length}), {heads, scale_of(heads), 0});
}

TEST_CASE("attention over whole sequences matches double precision for every head layout") {
  const HeadLayout heads = any_heads();
  const int num_threads = GENERATE(1, 3);
  CAPTURE(heads.num_heads, heads.num_kv_heads, heads.head_dim, num_threads);
  check(whole_sequences({0, 75, 76, 140, 289}), {heads, scale_of(heads), 0}, 1.0f, num_threads);
}

TEST_CASE("attention over whole sequences of a connector's length matches double precision") {
  const HeadLayout heads = GENERATE(HeadLayout{1, 1, 128}, HeadLayout{2, 2, 64});
  CAPTURE(heads.head_dim);
  check(whole_sequences({0, 1024, 2048}), {heads, scale_of(heads), 0});
}

TEST_CASE("attention of many heads over whole sequences matches double precision around its blocks") {
  const auto [heads, times] = many_heads();
  const std::int64_t length = GENERATE(512, 513, 639, 640, 641);
  CAPTURE(heads.head_dim, times, length);
  check(whole_sequences({0, length}), {heads, scale_of(heads), 0}, 1.0f, 2, times);
}

TEST_CASE("attention of many heads over several sequences matches double precision, within any window") {
  const auto [heads, times] =
      GENERATE(ManyHeads{{2, 2, 128}, 24}, ManyHeads{{2, 2, 64}, 8}, ManyHeads{{4, 1, 64}, 4},
               ManyHeads{{3, 1, 128}, 14}, ManyHeads{{4, 2, 256}, 8});
  const std::int64_t window = GENERATE(0, 1, 50, 300);
  CAPTURE(heads.num_heads, heads.head_dim, times, window);
  check(with_random_ends({0, 1, 130, 643, 700}, 1), {heads, scale_of(heads), window}, 1.0f, 2, times);
}

TEST_CASE("attention with images in the text matches double precision, within any window") {
  const HeadLayout heads = any_heads();
  const std::int64_t window = GENERATE(0, 1, 16, 50, 512);
  CAPTURE(heads.num_heads, heads.num_kv_heads, heads.head_dim, window);
  // At the begin and the end of a sequence, next to each other, of one row, across blocks of queries.
  const std::vector<Block> images = {{0, 33},    {60, 61},   {70, 134}, {134, 150},
                                     {151, 290}, {310, 311}, {320, 337}};
  check(with_blocks({0, 150, 151, 311, 350}, images), {heads, scale_of(heads), window});
}

TEST_CASE("attention with an image longer than the window matches double precision") {
  const HeadLayout heads = GENERATE(HeadLayout{4, 2, 64}, HeadLayout{2, 1, 256});
  const std::int64_t window = GENERATE(0, 100, 256, 512);
  CAPTURE(heads.head_dim, window);
  check(with_blocks({0, 700}, {{11, 267}, {300, 556}}), {heads, scale_of(heads), window});
}

TEST_CASE("attention with ends stands scores far apart") {
  const HeadLayout heads{2, 1, 64};
  check(whole_sequences({0, 300}), {heads, 1.0f, 0}, 6.0f);
  check(with_blocks({0, 300}, {{20, 250}}), {heads, 1.0f, 64}, 6.0f);
  check(whole_sequences({0, 600}), {heads, 1.0f, 0}, 6.0f, 2, 12);
}

TEST_CASE("attention sees exactly the rows up to its end") {
  // Equal scores: the output is the mean of the visible values. Value n is 1 at n % 64, so that each column
  // counts a few keys.
  OpTesting testing;
  const auto [heads, times] = GENERATE(ManyHeads{{1, 1, 64}, 1}, ManyHeads{{2, 1, 64}, 1},
                                       ManyHeads{{1, 1, 64}, 40}, ManyHeads{{1, 1, 128}, 16});
  const std::int64_t window = GENERATE(0, 1, 40, 300);
  const std::uint64_t seed = GENERATE(1, 2);
  CAPTURE(heads.num_heads, heads.head_dim, times, window, seed);
  const HostSpans spans = with_random_ends({0, 1, 130, 643, 700}, seed);
  std::vector<float> qkv(static_cast<std::size_t>(spans.num_rows() * heads.qkv_width()), 0.0f);
  for (std::int64_t n = 0; n < spans.num_rows(); ++n)
    qkv[static_cast<std::size_t>(n * heads.qkv_width() + heads.v_column(0) + n % 64)] = 1.0f;
  const AttentionParams params{heads, 1.0f, window};
  const std::int64_t rows = spans.num_rows();
  const std::vector<float> actual =
      attend(testing, repeat_columns(qkv, rows, times), spans, repeat_heads(params, times));
  const Comparison result = compare_elements(
      {actual.data(), DType::kF32, {rows, times * heads.q_width()}},
      repeat_columns(attention_reference(qkv, spans, params), rows, times), 1e-7, 1e-5 + testing.rounding());
  INFO(result.report);
  CHECK(result.ok);
}

TEST_CASE("attention with ends right behind each row is causal attention") {
  OpTesting testing;
  const AttentionParams params{{4, 2, 64}, 0.125f, GENERATE(0, 50)};
  const std::vector<std::int64_t> offsets = {0, 1, 140, 333};
  const std::vector<float> qkv = random_values(offsets.back() * params.heads.qkv_width(), 5);
  const std::vector<float> causal = attend(testing, qkv, causal_spans(offsets), params);
  const std::vector<float> same = attend(testing, qkv, with_blocks(offsets, {}), params);
  const Comparison result = compare_elements(
      {same.data(), DType::kF32, {offsets.back(), params.heads.q_width()}},
      std::vector<double>(causal.begin(), causal.end()), 5 * (16 * kEps + 2 * testing.rounding()), 0);
  INFO(result.report);
  CHECK(result.ok);
}

TEST_CASE("attention with ends gives the same bytes every time, with any number of threads") {
  const AttentionParams params{{4, 2, 64}, 0.125f, GENERATE(0, 64)};
  const HostSpans spans = with_random_ends({0, 200, 333}, 3);
  const std::vector<float> qkv = random_values(333 * params.heads.qkv_width(), 5);
  OpTesting one(1);
  OpTesting three(3);
  const std::vector<float> first = attend(three, qkv, spans, params);
  for (int round = 0; round < 3; ++round)
    CHECK((attend(three, qkv, spans, params) == first));
  CHECK((attend(one, qkv, spans, params) == first));
}

TEST_CASE("attention of many heads with ends gives the same bytes every time, for each head alike") {
  const auto [heads, times] = many_heads();
  CAPTURE(heads.head_dim, times);
  const AttentionParams params{heads, scale_of(heads), 0};
  const HostSpans spans = with_random_ends({0, 200, 700}, 3);
  const std::vector<float> qkv = random_values(700 * heads.qkv_width(), 5);
  OpTesting testing;
  const std::vector<float> many = repeat_columns(qkv, 700, times);
  const std::vector<float> first = attend(testing, many, spans, repeat_heads(params, times));
  std::vector<float> of_one;  // the first so many heads
  for (std::int64_t n = 0; n < 700; ++n) {
    const auto row = first.begin() + n * times * heads.q_width();
    of_one.insert(of_one.end(), row, row + heads.q_width());
  }
  CHECK((repeat_columns(of_one, 700, times) == first));
  for (int round = 0; round < 5; ++round)
    CHECK((attend(testing, many, spans, repeat_heads(params, times)) == first));
}

}  // namespace gemmad
