// Attention by blocks of queries, with a running softmax over blocks of keys. The query heads that share a kv
// head are rows of one matrix, so that each block of keys is read once for all of them.
#include <algorithm>
#include <cstddef>
#include <string>

#include "kernels/cpu/kernels.h"

namespace gemmad::cpu {
namespace {

constexpr std::int64_t kRows = 128;  // query rows of a block, over all heads of a group
constexpr std::int64_t kLeastQueries = 16;
constexpr std::int64_t kKeys = RunningAttention::kKeys;

// One block of queries, from the projections to the output.
class BlockTask {
 public:
  BlockTask(ConstTensorView qkv, const std::int32_t* ends, const AttentionParams& params, TensorView out,
            const Attention::Block& block, RunningAttention& running)
      : params_(params),
        block_(block),
        running_(running),
        group_(params.heads.queries_per_kv_head()),
        width_(params.heads.head_dim),
        qkv_stride_(params.heads.qkv_width()),
        out_stride_(params.heads.q_width()),
        num_rows_(group_ * block.num_queries),
        ends_(ends),
        sequence_(qkv.as<float>() + block.sequence_begin * qkv_stride_),
        out_(out.as<float>() + block.sequence_begin * out_stride_) {}

  void run() {
    running_.begin(num_rows_, width_);
    gather_queries();
    const std::int64_t last_key = end_seen(block_.first_query + block_.num_queries - 1);
    const std::int64_t first_key = first_seen(block_.first_query);
    for (std::int64_t key = first_key; key < last_key; key += kKeys) {
      add_keys(key, std::min(kKeys, last_key - key));
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

  void gather_queries() {
    each_row([&](std::int64_t row, std::int64_t query, std::int64_t head) {
      running_.set_query(row, sequence_ + query * qkv_stride_ + params_.heads.q_column(head), params_.scale);
    });
  }

  void add_keys(std::int64_t first_key, std::int64_t num_keys) {
    const float* rows = sequence_ + first_key * qkv_stride_;
    running_.add_keys(
        {rows + params_.heads.k_column(block_.kv_head), qkv_stride_},
        {rows + params_.heads.v_column(block_.kv_head), qkv_stride_}, num_keys, [&](std::int64_t row) {
          const std::int64_t query = block_.first_query + row % block_.num_queries;
          const std::int64_t first = std::clamp<std::int64_t>(first_seen(query) - first_key, 0, num_keys);
          return RunningAttention::Seen{
              first, std::clamp<std::int64_t>(end_seen(query) - first_key, first, num_keys)};
        });
  }

  void write_output() const {
    each_row([&](std::int64_t row, std::int64_t query, std::int64_t head) {
      running_.write(row, out_ + query * out_stride_ + head * width_);
    });
  }

  const AttentionParams& params_;
  const Attention::Block& block_;
  RunningAttention& running_;
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

}  // namespace

Attention::Attention(ThreadPool& pool)
    : pool_(pool), running_(static_cast<std::size_t>(pool.num_threads())) {}

void Attention::run(ConstTensorView qkv, const AttentionSpans& spans, const AttentionParams& params,
                    TensorView out) {
  const std::int64_t group = params.heads.queries_per_kv_head();
  const std::int64_t block_queries = std::max(kLeastQueries, kRows / group);
  for (RunningAttention& running : running_)
    running.reserve(group * block_queries, params.heads.head_dim);
  cut_into_blocks(spans, params.heads, block_queries);
  pool_.run(static_cast<std::int64_t>(blocks_.size()), [&](std::int64_t index, int worker) {
    BlockTask(qkv, spans.ends.as<std::int32_t>(), params, out, blocks_[static_cast<std::size_t>(index)],
              running_[static_cast<std::size_t>(worker)])
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
