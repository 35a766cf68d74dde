// Attention by blocks of queries, with a running softmax over blocks of keys. The query heads that share a kv
// head are rows of one matrix, so that each block of keys is read once for all of them.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/multiversion.h"
#include "kernels/cpu/vector_math.h"

namespace gemmad::cpu {
namespace {

constexpr std::int64_t kRows = 128;  // query rows of a block, over all heads of a group
constexpr std::int64_t kLeastQueries = 16;
constexpr std::int64_t kKeys = 512;  // of a block
constexpr float kNone = -std::numeric_limits<float>::infinity();

// scores[0, num_keys): of one query against a block of keys, of which it sees [first, last). Turns them into
// weights relative to the new running maximum, zero where unseen. Returns by what the row's earlier sums must
// be multiplied.
GEMMAD_MULTIVERSION float soften_row(float* scores, std::int64_t num_keys, std::int64_t first,
                                     std::int64_t last, float& row_max, float& row_sum) {
  float block_max = kNone;
#pragma omp simd reduction(max : block_max)
  for (std::int64_t i = first; i < last; ++i)
    block_max = scores[i] > block_max ? scores[i] : block_max;
  const float new_max = block_max > row_max ? block_max : row_max;

  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = first; i < last; ++i) {
    const float weight = exp_clamped(scores[i] - new_max);
    scores[i] = weight;
    sum += weight;
  }
  for (std::int64_t i = 0; i < first; ++i)
    scores[i] = 0;
  for (std::int64_t i = last; i < num_keys; ++i)
    scores[i] = 0;

  const float keep = row_max == new_max ? 1.0f : row_max == kNone ? 0.0f : exp_clamped(row_max - new_max);
  row_sum = row_sum * keep + sum;
  row_max = new_max;
  return keep;
}

GEMMAD_MULTIVERSION void scale_row(const float* from, float factor, float* to, std::int64_t width) {
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i)
    to[i] = from[i] * factor;
}

// One block of queries, from the projections to the output.
class BlockTask {
 public:
  BlockTask(ConstTensorView qkv, const std::int32_t* ends, const AttentionParams& params, TensorView out,
            const Attention::Block& block, Attention::Scratch& scratch)
      : params_(params),
        block_(block),
        scratch_(scratch),
        group_(params.heads.queries_per_kv_head()),
        width_(params.heads.head_dim),
        qkv_stride_(params.heads.qkv_width()),
        out_stride_(params.heads.q_width()),
        num_rows_(group_ * block.num_queries),
        ends_(ends),
        sequence_(qkv.as<float>() + block.sequence_begin * qkv_stride_),
        out_(out.as<float>() + block.sequence_begin * out_stride_) {}

  void run() {
    gather_queries();
    std::fill_n(scratch_.row_max.begin(), num_rows_, kNone);
    std::fill_n(scratch_.row_sum.begin(), num_rows_, 0.0f);
    const std::int64_t last_key = end_seen(block_.first_query + block_.num_queries - 1);
    const std::int64_t first_key = first_seen(block_.first_query);
    for (std::int64_t key = first_key; key < last_key; key += kKeys) {
      add_keys(key, std::min(kKeys, last_key - key), key == first_key);
    }
    write_output();
  }

 private:
  std::int64_t first_seen(std::int64_t query) const {
    return params_.window == 0 ? 0 : std::max<std::int64_t>(0, query - params_.window + 1);
  }

  std::int64_t end_seen(std::int64_t query) const {
    return ends_ == nullptr ? query + 1 : ends_[block_.sequence_begin + query] - block_.sequence_begin;
  }

  // Calls visit(row, query, head): rows are head by head.
  template <typename Visit>
  void each_row(const Visit& visit) const {
    for (std::int64_t j = 0; j < group_; ++j) {
      for (std::int64_t i = 0; i < block_.num_queries; ++i) {
        visit(j * block_.num_queries + i, block_.first_query + i, block_.kv_head * group_ + j);
      }
    }
  }

  // The scale goes into the queries: one product a query element, not one a score.
  void gather_queries() {
    each_row([&](std::int64_t row, std::int64_t query, std::int64_t head) {
      scale_row(sequence_ + query * qkv_stride_ + params_.heads.q_column(head), params_.scale,
                scratch_.queries.data() + row * width_, width_);
    });
  }

  void add_keys(std::int64_t first_key, std::int64_t num_keys, bool first_block) {
    const float* rows = sequence_ + first_key * qkv_stride_;
    const float* keys = rows + params_.heads.k_column(block_.kv_head);
    const float* values = rows + params_.heads.v_column(block_.kv_head);
    float* scores = scratch_.scores.data();
    float* accumulator = scratch_.accumulator.data();
    gemm_nt(num_rows_, num_keys, width_, {scratch_.queries.data(), width_}, {keys, qkv_stride_}, false,
            {scores, num_keys});
    each_row([&](std::int64_t row, std::int64_t query, std::int64_t) {
      const std::int64_t first = std::clamp<std::int64_t>(first_seen(query) - first_key, 0, num_keys);
      const std::int64_t last = std::clamp<std::int64_t>(end_seen(query) - first_key, first, num_keys);
      const auto r = static_cast<std::size_t>(row);
      const float keep = soften_row(scores + row * num_keys, num_keys, first, last, scratch_.row_max[r],
                                    scratch_.row_sum[r]);
      if (!first_block && keep != 1.0f)
        scale_row(accumulator + row * width_, keep, accumulator + row * width_, width_);
    });
    gemm_nn(num_rows_, width_, num_keys, {scores, num_keys}, {values, qkv_stride_}, !first_block,
            {accumulator, width_});
  }

  void write_output() const {
    each_row([&](std::int64_t row, std::int64_t query, std::int64_t head) {
      scale_row(scratch_.accumulator.data() + row * width_,
                1.0f / scratch_.row_sum[static_cast<std::size_t>(row)],
                out_ + query * out_stride_ + head * width_, width_);
    });
  }

  const AttentionParams& params_;
  const Attention::Block& block_;
  Attention::Scratch& scratch_;
  std::int64_t group_;       // query heads of a kv head
  std::int64_t width_;       // S
  std::int64_t qkv_stride_;  // from one token to the next
  std::int64_t out_stride_;
  std::int64_t num_rows_;
  const std::int32_t* ends_;  // of the batch's rows; null: causal
  const float* sequence_;     // first row of the sequence, in qkv
  float* out_;                // the same, in the output
};

// Of the sequence that is rows [begin, end).
void check_ends(const std::int32_t* ends, std::int64_t begin, std::int64_t end) {
  for (std::int64_t n = begin; n < end; ++n) {
    const std::int64_t least = n == begin ? n + 1 : std::max<std::int64_t>(n + 1, ends[n - 1]);
    if (ends[n] < least || ends[n] > end) {
      throw OpError("attention: ends[" + std::to_string(n) + "] is " + std::to_string(ends[n]) +
                    ", must be in [" + std::to_string(least) + ", " + std::to_string(end) + "]");
    }
  }
}

template <typename Value>
void grow(std::vector<Value>& values, std::int64_t count) {
  if (values.size() < static_cast<std::size_t>(count)) values.resize(static_cast<std::size_t>(count));
}

}  // namespace

Attention::Attention(ThreadPool& pool)
    : pool_(pool), scratch_(static_cast<std::size_t>(pool.num_threads())) {}

void Attention::run(ConstTensorView qkv, const AttentionSpans& spans, const AttentionParams& params,
                    TensorView out) {
  const std::int64_t group = params.heads.queries_per_kv_head();
  const std::int64_t block_queries = std::max(kLeastQueries, kRows / group);
  const std::int64_t rows = group * block_queries;
  for (Scratch& scratch : scratch_) {
    grow(scratch.queries, rows * params.heads.head_dim);
    grow(scratch.scores, rows * kKeys);
    grow(scratch.accumulator, rows * params.heads.head_dim);
    grow(scratch.row_max, rows);
    grow(scratch.row_sum, rows);
  }
  cut_into_blocks(spans, params.heads, block_queries);
  pool_.run(static_cast<std::int64_t>(blocks_.size()), [&](std::int64_t index, int worker) {
    BlockTask(qkv, spans.ends.as<std::int32_t>(), params, out, blocks_[static_cast<std::size_t>(index)],
              scratch_[static_cast<std::size_t>(worker)])
        .run();
  });
}

void Attention::cut_into_blocks(const AttentionSpans& spans, const HeadLayout& heads,
                                std::int64_t block_queries) {
  blocks_.clear();
  const std::int32_t* const begin_of = spans.begins.as<std::int32_t>();
  const std::int64_t num_rows = spans.begins.shape[0];
  for (std::int64_t begin = 0, end = 0; begin < num_rows; begin = end) {
    if (begin_of[begin] != begin) {
      throw OpError("attention: begins[" + std::to_string(begin) + "] is " + std::to_string(begin_of[begin]) +
                    ", must be the row itself or the begin of the row before");
    }
    for (end = begin; end < num_rows && begin_of[end] == begin;)
      ++end;
    if (spans.ends.data != nullptr) check_ends(spans.ends.as<std::int32_t>(), begin, end);
    // The last queries see the most keys: begun first, they leave the short blocks to even out the threads.
    for (std::int64_t block = (end - begin + block_queries - 1) / block_queries - 1; block >= 0; --block) {
      const std::int64_t first = block * block_queries;
      for (std::int64_t kv_head = 0; kv_head < heads.num_kv_heads; ++kv_head)
        blocks_.push_back({begin, kv_head, first, std::min(block_queries, end - begin - first)});
    }
  }
}

}  // namespace gemmad::cpu
