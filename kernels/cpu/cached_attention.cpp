// Keys and values that stay from pass to pass. Rows at positions one after another are attended together, as
// in attention.cpp; where sequences go on by one row each, a block has one.
#include <algorithm>
#include <cstddef>
#include <string>

#include "kernels/cpu/kernels.h"

namespace gemmad::cpu {
namespace {

constexpr std::int64_t kRows = 128;  // query rows of a block, over all heads of a group
constexpr std::int64_t kLeastRows = 16;

// CacheRows on the host.
struct Rows {
  explicit Rows(const CacheRows& rows)
      : slots(rows.slots.as<std::int32_t>()),
        positions(rows.positions.as<std::int32_t>()),
        ends(rows.ends.as<std::int32_t>()) {}

  // Row n stands behind row n - 1, or both stand nowhere.
  bool goes_on(std::int64_t n) const {
    if (slots[n] < 0) return slots[n - 1] < 0;
    return slots[n] == slots[n - 1] && positions[n] == std::int64_t{positions[n - 1]} + 1;
  }
  std::int64_t first_seen(std::int64_t n, std::int64_t window) const {
    return window == 0 ? 0 : std::max<std::int64_t>(0, positions[n] - window + 1);
  }

  const std::int32_t* slots;
  const std::int32_t* positions;
  const std::int32_t* ends;
};

[[noreturn]] void refuse(const char* op, const char* argument, std::int64_t n, std::int64_t value,
                         const std::string& must_be) {
  throw OpError(std::string(op) + ": " + argument + "[" + std::to_string(n) + "] is " +
                std::to_string(value) + ", must be " + must_be);
}

void check_rows(const char* op, const CacheRows& cache_rows, ConstTensorView cache) {
  const Rows rows(cache_rows);
  for (std::int64_t n = 0; n < cache_rows.slots.shape[0]; ++n) {
    if (cache_rows.is_chunk && n > 0 && rows.slots[n] >= 0 && !rows.goes_on(n)) {
      throw OpError(std::string(op) + ": row " + std::to_string(n) +
                    " is not the one behind the row before, must be in a chunk");
    }
    if (rows.slots[n] < 0) continue;
    if (rows.slots[n] >= cache.shape[0])
      refuse(op, "slots", n, rows.slots[n], "less than " + std::to_string(cache.shape[0]));
    if (rows.positions[n] < 0) refuse(op, "positions", n, rows.positions[n], "0 or more");
    if (rows.ends[n] <= rows.positions[n])
      refuse(op, "ends", n, rows.ends[n], "above the row's position, " + std::to_string(rows.positions[n]));
  }
}

void check_seen(const CacheRows& cache_rows, std::int64_t window, std::int64_t num_positions) {
  const Rows rows(cache_rows);
  for (std::int64_t n = 0; n < cache_rows.slots.shape[0]; ++n) {
    const std::int64_t most = rows.first_seen(n, window) + num_positions;
    if (rows.slots[n] >= 0 && rows.ends[n] > most) {
      refuse("attention_cached", "ends", n, rows.ends[n],
             "at most " + std::to_string(most) + ": the cache has " + std::to_string(num_positions) +
                 " positions");
    }
  }
}

// One block of rows for the query heads of one kv head.
class BlockTask {
 public:
  BlockTask(ConstTensorView qkv, const CacheRows& rows, ConstTensorView cache, const AttentionParams& params,
            TensorView out, const CachedAttention::Block& block, std::int64_t kv_head,
            RunningAttention& running)
      : params_(params),
        block_(block),
        running_(running),
        rows_(rows),
        group_(params.heads.queries_per_kv_head()),
        kv_head_(kv_head),
        num_positions_(cache.shape[1]),
        cache_stride_(cache.shape[2]),
        qkv_(qkv.as<float>() + block.first_row * params.heads.qkv_width()),
        cache_(cache.as<float>()),
        out_(out.as<float>() + block.first_row * params.heads.q_width()) {}

  void run() {
    if (rows_.slots[block_.first_row] < 0) return write_zeros();
    running_.begin(group_ * block_.num_rows, params_.heads.head_dim);
    each_row([&](std::int64_t row, std::int64_t n, std::int64_t head) {
      running_.set_query(row, qkv_ + n * params_.heads.qkv_width() + params_.heads.q_column(head),
                         params_.scale);
    });
    const std::int32_t* const ends = rows_.ends + block_.first_row;
    const std::int64_t last = *std::max_element(ends, ends + block_.num_rows);
    std::int64_t position = rows_.first_seen(block_.first_row, params_.window);
    while (position < last) {
      const std::int64_t behind_wrap = num_positions_ - position % num_positions_;
      const std::int64_t count = std::min({RunningAttention::kKeys, last - position, behind_wrap});
      add_keys(position, count);
      position += count;
    }
    each_row([&](std::int64_t row, std::int64_t n, std::int64_t head) {
      running_.write(row, out_ + n * params_.heads.q_width() + head * params_.heads.head_dim);
    });
  }

 private:
  // Calls visit(row, n, head): rows are head by head, n counts the block's.
  template <typename Visit>
  void each_row(const Visit& visit) const {
    for (std::int64_t j = 0; j < group_; ++j) {
      for (std::int64_t n = 0; n < block_.num_rows; ++n)
        visit(j * block_.num_rows + n, n, kv_head_ * group_ + j);
    }
  }

  void add_keys(std::int64_t position, std::int64_t count) {
    const std::int64_t slot = rows_.slots[block_.first_row];
    const float* keys = cache_ + (slot * num_positions_ + position % num_positions_) * cache_stride_ +
                        kv_head_ * params_.heads.head_dim;
    const float* values = keys + params_.heads.kv_width();
    running_.add_keys({keys, cache_stride_}, {values, cache_stride_}, count, [&](std::int64_t row) {
      const std::int64_t n = block_.first_row + row % block_.num_rows;
      const std::int64_t first =
          std::clamp<std::int64_t>(rows_.first_seen(n, params_.window) - position, 0, count);
      return RunningAttention::Seen{first, std::clamp<std::int64_t>(rows_.ends[n] - position, first, count)};
    });
  }

  void write_zeros() const {
    each_row([&](std::int64_t, std::int64_t n, std::int64_t head) {
      std::fill_n(out_ + n * params_.heads.q_width() + head * params_.heads.head_dim, params_.heads.head_dim,
                  0.0f);
    });
  }

  const AttentionParams& params_;
  const CachedAttention::Block& block_;
  RunningAttention& running_;
  Rows rows_;
  std::int64_t group_;  // query heads of a kv head
  std::int64_t kv_head_;
  std::int64_t num_positions_;  // P
  std::int64_t cache_stride_;   // from one position to the next
  const float* qkv_;            // the block's first row
  const float* cache_;
  float* out_;  // the block's first row
};

}  // namespace

void store_kv(ThreadPool& pool, ConstTensorView qkv, const HeadLayout& heads, const CacheRows& cache_rows,
              TensorView cache) {
  check_rows("store_kv", cache_rows, cache);
  const Rows rows(cache_rows);
  const std::int64_t num_positions = cache.shape[1];
  for_row_blocks(pool, qkv.shape[0], cache.shape[2], [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      if (rows.slots[n] < 0) continue;
      const float* from = qkv.as<float>() + n * heads.qkv_width();
      float* to = cache.as<float>() +
                  (rows.slots[n] * num_positions + rows.positions[n] % num_positions) * cache.shape[2];
      for (std::int64_t kv_head = 0; kv_head < heads.num_kv_heads; ++kv_head, to += heads.head_dim) {
        std::copy_n(from + heads.k_column(kv_head), heads.head_dim, to);
        std::copy_n(from + heads.v_column(kv_head), heads.head_dim, to + heads.kv_width());
      }
    }
  });
}

CachedAttention::CachedAttention(ThreadPool& pool)
    : pool_(pool), running_(static_cast<std::size_t>(pool.num_threads())) {}

void CachedAttention::run(ConstTensorView qkv, const CacheRows& rows, ConstTensorView cache,
                          const AttentionParams& params, TensorView out) {
  check_rows("attention_cached", rows, cache);
  check_seen(rows, params.window, cache.shape[1]);
  const std::int64_t group = params.heads.queries_per_kv_head();
  const std::int64_t block_rows = std::max(kLeastRows, kRows / group);
  for (RunningAttention& running : running_)
    running.reserve(group * block_rows, params.heads.head_dim);
  cut_into_blocks(rows, block_rows);
  const std::int64_t kv_heads = params.heads.num_kv_heads;
  pool_.run(static_cast<std::int64_t>(blocks_.size()) * kv_heads, [&](std::int64_t index, int worker) {
    BlockTask(qkv, rows, cache, params, out, blocks_[static_cast<std::size_t>(index / kv_heads)],
              index % kv_heads, running_[static_cast<std::size_t>(worker)])
        .run();
  });
}

void CachedAttention::cut_into_blocks(const CacheRows& cache_rows, std::int64_t block_rows) {
  blocks_.clear();
  const Rows rows(cache_rows);
  const std::int64_t num_rows = cache_rows.slots.shape[0];
  for (std::int64_t begin = 0, end = 0; begin < num_rows; begin = end) {
    for (end = begin + 1; end < num_rows && end - begin < block_rows && rows.goes_on(end);)
      ++end;
    blocks_.push_back({begin, end - begin});
  }
}

}  // namespace gemmad::cpu
