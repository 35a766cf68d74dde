// What tests of attention share: a reference in double, and how a batch goes through the operation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/kernels/op_testing.h"
#include "tests/support/compare.h"

namespace gemmad {

/// AttentionSpans on the host. Without ends: causal.
struct HostSpans {
  std::vector<std::int32_t> begins;
  std::vector<std::int32_t> ends;

  std::int64_t num_rows() const { return static_cast<std::int64_t>(begins.size()); }
};

/// Sequences from each offset to the next, causal.
inline HostSpans causal_spans(const std::vector<std::int64_t>& offsets) {
  HostSpans spans;
  for (std::size_t b = 0; b + 1 < offsets.size(); ++b)
    spans.begins.insert(spans.begins.end(), static_cast<std::size_t>(offsets[b + 1] - offsets[b]),
                        static_cast<std::int32_t>(offsets[b]));
  return spans;
}

/// What one query sees: rows [first, end) of the same qkv.
struct SeenRows {
  std::int64_t first;
  std::int64_t end;
};

/// Softmax over the keys that row `query` of qkv [N, (H + 2K) S] sees. Appends H S values to `out`.
inline void append_attention_row(const std::vector<float>& qkv, std::int64_t query, const SeenRows& seen,
                                 const AttentionParams& params, std::vector<double>& out) {
  const HeadLayout& heads = params.heads;
  const std::int64_t width = heads.head_dim;
  const std::int64_t queries = heads.num_heads / heads.num_kv_heads;
  const auto row = [&](std::int64_t n, std::int64_t column) {
    return qkv.data() + n * heads.qkv_width() + column;
  };
  std::vector<double> weights;
  for (std::int64_t head = 0; head < heads.num_heads; ++head) {
    const std::int64_t group = head / queries * (queries + 2) * width;
    const float* const q = row(query, group + head % queries * width);
    double largest = -INFINITY;
    weights.clear();
    for (std::int64_t key = seen.first; key < seen.end; ++key) {
      double score = 0;
      for (std::int64_t i = 0; i < width; ++i)
        score += double{q[i]} * row(key, group + queries * width)[i];
      weights.push_back(score * params.scale);
      largest = std::max(largest, weights.back());
    }
    double sum = 0;
    for (double& weight : weights)
      sum += weight = std::exp(weight - largest);
    out.resize(out.size() + static_cast<std::size_t>(width));
    double* const to = out.data() + out.size() - width;
    for (std::int64_t key = seen.first; key < seen.end; ++key) {
      const float* value = row(key, group + (queries + 1) * width);
      const double weight = weights[static_cast<std::size_t>(key - seen.first)] / sum;
      for (std::int64_t i = 0; i < width; ++i)
        to[i] += weight * value[i];
    }
  }
}

/// The same for all rows of packed sequences.
inline std::vector<double> attention_reference(const std::vector<float>& qkv, const HostSpans& spans,
                                               const AttentionParams& params) {
  std::vector<double> out;
  for (std::int64_t query = 0; query < spans.num_rows(); ++query) {
    const auto n = static_cast<std::size_t>(query);
    const std::int64_t begin = spans.begins[n];
    const std::int64_t first = params.window == 0 ? begin : std::max(begin, query - params.window + 1);
    const std::int64_t end = spans.ends.empty() ? query + 1 : spans.ends[n];
    append_attention_row(qkv, query, {first, end}, params, out);
  }
  return out;
}

/// How far a value of attention may be off, with inputs of about `size`. A score of size s is off by some s
/// eps, which is the relative error of its weight; weights sum to 1 over values up to 5.
inline double attention_limit(const OpTesting& testing, const AttentionParams& params, float size) {
  const double score_size =
      size * size * params.scale * std::sqrt(static_cast<double>(params.heads.head_dim)) * 5;
  // Weights are rounded to the compute type, and so is their sum of values.
  return ((8 + 2 * score_size) * kEps + 2 * testing.rounding()) * 5 * size;
}

inline std::vector<float> attend(OpTesting& testing, const std::vector<float>& qkv, const HostSpans& spans,
                                 const AttentionParams& params) {
  const DeviceTensor begins = testing.put(spans.begins);
  const DeviceTensor ends = testing.put(spans.ends);
  const DeviceTensor in = testing.put(qkv, {spans.num_rows(), params.heads.qkv_width()});
  const Shape shape{spans.num_rows(), params.heads.q_width()};
  const DeviceTensor out =
      testing.put(std::vector<float>(static_cast<std::size_t>(shape.num_elements()), NAN), shape);
  testing.ops().attention(in.view, {begins.view, spans.ends.empty() ? TensorView{} : ends.view}, params,
                          out.view, testing.stream());
  return testing.get(out.view);
}

/// Every row of a matrix so often in a row: qkv, or attention's output, of so many times the heads.
template <typename T>
std::vector<T> repeat_columns(const std::vector<T>& matrix, std::int64_t num_rows, std::int64_t times) {
  const std::int64_t width = static_cast<std::int64_t>(matrix.size()) / num_rows;
  std::vector<T> repeated;
  repeated.reserve(matrix.size() * static_cast<std::size_t>(times));
  for (std::int64_t n = 0; n < num_rows; ++n) {
    const auto row = matrix.begin() + n * width;
    for (std::int64_t time = 0; time < times; ++time)
      repeated.insert(repeated.end(), row, row + width);
  }
  return repeated;
}

/// These heads, `times` times over.
inline AttentionParams repeat_heads(AttentionParams params, std::int64_t times) {
  params.heads.num_heads *= times;
  params.heads.num_kv_heads *= times;
  return params;
}

/// With values of about `size`. `times`: so many times the heads of `params`, which costs the reference
/// nothing.
inline Comparison compare_attention(const HostSpans& spans, const AttentionParams& params, float size,
                                    int num_threads, std::int64_t times = 1) {
  OpTesting testing(num_threads);
  const std::int64_t rows = spans.num_rows();
  const std::vector<float> qkv = testing.rounded(random_values(rows * params.heads.qkv_width(), 7, size));
  const AttentionParams all = repeat_heads(params, times);
  const std::vector<float> actual = attend(testing, repeat_columns(qkv, rows, times), spans, all);
  return compare_elements({actual.data(), DType::kF32, {rows, all.heads.q_width()}},
                          repeat_columns(attention_reference(qkv, spans, params), rows, times),
                          attention_limit(testing, params, size), 0);
}

}  // namespace gemmad
