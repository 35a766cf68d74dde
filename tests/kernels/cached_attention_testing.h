// What tests of keys and values that stay share: sequences that go through the cache some rows at a time, as
// generation has them.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/kernels/attention_testing.h"

namespace gemmad {

/// One row of a pass: of which sequence, at which position. No sequence: below 0.
struct CacheRow {
  std::int64_t sequence = -1;
  std::int64_t position = 0;
};

/// Rows [begin, end) of one sequence.
inline std::vector<CacheRow> rows_of(std::int64_t sequence, std::int64_t begin, std::int64_t end) {
  std::vector<CacheRow> rows;
  for (std::int64_t position = begin; position < end; ++position)
    rows.push_back({sequence, position});
  return rows;
}

/// Sequences, causal but for `ends`, and a cache for them, which nothing but stored rows may be read from: it
/// is NaN where nothing was stored.
class CachedSequences {
 public:
  /// A cache of `num_positions`, with slots to spare.
  CachedSequences(OpTesting& testing, const AttentionParams& params, std::int64_t num_positions,
                  const std::vector<std::int64_t>& lengths, float size = 1.0f)
      : testing_(testing), params_(params), num_positions_(num_positions), size_(size) {
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      qkv_.push_back(testing.rounded(random_values(lengths[s] * params.heads.qkv_width(), 7 + s, size)));
      std::vector<std::int32_t>& ends = ends_.emplace_back();
      for (std::int64_t n = 0; n < lengths[s]; ++n)
        ends.push_back(static_cast<std::int32_t>(n + 1));
    }
    const Shape shape{num_slots(), num_positions, 2 * params.heads.kv_width()};
    cache_ = testing.put(std::vector<float>(static_cast<std::size_t>(shape.num_elements()), NAN), shape);
  }

  /// Rows [begin, end) of a sequence see each other.
  void add_block(std::int64_t sequence, std::int64_t begin, std::int64_t end) {
    std::fill(ends_[at(sequence)].begin() + begin, ends_[at(sequence)].begin() + end,
              static_cast<std::int32_t>(end));
  }

  std::int64_t num_slots() const { return 2 * static_cast<std::int64_t>(qkv_.size()) + 1; }
  /// Not in the order of the sequences, and slots between them that nothing is in.
  std::int64_t slot_of(std::int64_t sequence) const { return num_slots() - 2 - 2 * sequence; }
  std::vector<float> cache() { return testing_.get(cache_.view); }
  const std::vector<float>& qkv(std::int64_t sequence) const { return qkv_[at(sequence)]; }

  /// Stores the rows and attends them. [N, H S].
  std::vector<float> pass(const std::vector<CacheRow>& rows, bool is_chunk) {
    store(rows, is_chunk);
    return attend(rows, is_chunk);
  }

  void store(const std::vector<CacheRow>& rows, bool is_chunk) {
    const Batch batch(*this, rows);
    testing_.ops().store_kv(batch.qkv.view, params_.heads, batch.rows(is_chunk), cache_.view,
                            testing_.stream());
    testing_.ops().synchronize(testing_.stream());
  }

  std::vector<float> attend(const std::vector<CacheRow>& rows, bool is_chunk) {
    const Batch batch(*this, rows);
    const Shape shape{static_cast<std::int64_t>(rows.size()), params_.heads.q_width()};
    const DeviceTensor out =
        testing_.put(std::vector<float>(static_cast<std::size_t>(shape.num_elements()), NAN), shape);
    testing_.ops().attention_cached(batch.qkv.view, batch.rows(is_chunk), cache_.view, params_, out.view,
                                    testing_.stream());
    return testing_.get(out.view);
  }

  /// What attend() must give. Rows of no sequence: zeros.
  std::vector<double> expected(const std::vector<CacheRow>& rows) const {
    std::vector<double> out;
    for (const CacheRow& row : rows) {
      if (row.sequence < 0) {
        out.resize(out.size() + static_cast<std::size_t>(params_.heads.q_width()));
        continue;
      }
      const std::int64_t first =
          params_.window == 0 ? 0 : std::max<std::int64_t>(0, row.position - params_.window + 1);
      append_attention_row(qkv_[at(row.sequence)], row.position,
                           {first, ends_[at(row.sequence)][at(row.position)]}, params_, out);
    }
    return out;
  }

  Comparison compare(const std::vector<float>& actual, const std::vector<CacheRow>& rows) const {
    return compare_elements(
        {actual.data(), DType::kF32, {static_cast<std::int64_t>(rows.size()), params_.heads.q_width()}},
        expected(rows), attention_limit(testing_, params_, size_), 0);
  }

 private:
  static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

  // Rows of the sequences on the device. Rows of no sequence are NaN and stand nowhere.
  struct Batch {
    Batch(CachedSequences& of, const std::vector<CacheRow>& cache_rows) {
      const std::int64_t width = of.params_.heads.qkv_width();
      std::vector<float> host;
      std::vector<std::int32_t> host_slots;
      std::vector<std::int32_t> host_positions;
      std::vector<std::int32_t> host_ends;
      for (const CacheRow& row : cache_rows) {
        const bool is_none = row.sequence < 0;
        host_slots.push_back(is_none ? -1 : static_cast<std::int32_t>(of.slot_of(row.sequence)));
        host_positions.push_back(static_cast<std::int32_t>(row.position));
        host_ends.push_back(is_none ? 0 : of.ends_[at(row.sequence)][at(row.position)]);
        if (is_none) {
          host.resize(host.size() + at(width), NAN);
        } else {
          const float* const from = of.qkv_[at(row.sequence)].data() + row.position * width;
          host.insert(host.end(), from, from + width);
        }
      }
      qkv = of.testing_.put(host, {static_cast<std::int64_t>(cache_rows.size()), width});
      slots = of.testing_.put(host_slots);
      positions = of.testing_.put(host_positions);
      ends = of.testing_.put(host_ends);
    }
    CacheRows rows(bool is_chunk) const { return {slots.view, positions.view, ends.view, is_chunk}; }

    DeviceTensor qkv, slots, positions, ends;
  };

  OpTesting& testing_;
  AttentionParams params_;
  std::int64_t num_positions_;
  float size_;
  std::vector<std::vector<float>> qkv_;          // of each sequence, [its length, (H + 2K) S]
  std::vector<std::vector<std::int32_t>> ends_;  // of each sequence
  DeviceTensor cache_;
};

}  // namespace gemmad
