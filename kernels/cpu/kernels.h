// The computations behind CpuOps, one file for those alike. Arguments have been checked (kernels/ops.h says
// what they are); all tensors are fp32 unless said otherwise. Results do not depend on the number of threads,
// gemm's order of summation apart.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/running_attention.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace gemmad::cpu {

/// dst := src, between equal types, or to F32 or BF16 from BF16, F16 or F32. dst has as many elements, in the
/// same order; its rows lie one after another.
void convert(ThreadPool& pool, TensorView dst, ConstMatrixView src);

/// The same on the calling thread alone, row by row.
void convert_here(TensorView dst, ConstMatrixView src);

/// Throws OpError for an id outside the table, before any work.
void embed(ThreadPool& pool, ConstTensorView ids, ConstTensorView table, float scale, TensorView out);

void rms_norm(ThreadPool& pool, ConstTensorView x, ConstTensorView weight, float eps, TensorView out);
/// Without peers.
void add_norm(ThreadPool& pool, const Ops::AddNorm& args);

void gemm(ThreadPool& pool, ConstTensorView x, ConstMatrixView w, MatrixView y);
void gemm_sums(ThreadPool& pool, ConstTensorView x, ConstTensorView w, bool adds, TensorView sums);
void add_bias(ThreadPool& pool, ConstTensorView sums, ConstTensorView bias, TensorView out);

/// Ops::linear and the scratch memory that its threads need where y is `add`. Scratch grows with the widest
/// result seen; a call with nothing larger than before allocates nothing.
class Linear {
 public:
  explicit Linear(ThreadPool& pool);

  void run(const Ops::Linear& args);

 private:
  ThreadPool& pool_;
  std::vector<std::vector<float>> tiles_;  // [num_threads], each of some rows and a thread's columns
};

/// Throws OpError for a position outside the table, before any work.
void norm_rope(ThreadPool& pool, TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight,
               ConstTensorView k_weight, float eps, ConstTensorView rope, ConstTensorView positions);

void norm_rope_across(ThreadPool& pool, TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight,
                      ConstTensorView k_weight, float eps, ConstTensorView rope, RopePairs pairs);

void geglu(ThreadPool& pool, ConstTensorView gate_up, std::int64_t block, TensorView out);

/// Throw OpError for a row outside x and for bounds that are none, before any work.
void rms_rows(ThreadPool& pool, ConstTensorView x, ConstTensorView rows, float factor, float eps,
              TensorView out);
void range_rows(ThreadPool& pool, ConstTensorView x, ConstTensorView rows, ConstTensorView bounds, float eps,
                TensorView scratch, TensorView out);

/// Throws OpError for bounds that are none, before any work.
void fill_registers(ThreadPool& pool, ConstTensorView features, ConstTensorView bounds,
                    ConstTensorView registers, TensorView out);

void layer_norm(ThreadPool& pool, ConstTensorView x, ConstTensorView weight, ConstTensorView bias, float eps,
                TensorView out);
void pool_squares(ThreadPool& pool, ConstTensorView x, std::int64_t k, TensorView out);

void gate_heads(ThreadPool& pool, TensorView x, ConstTensorView logits);

/// Attention and the scratch memory that its threads need. Scratch grows with the largest head layout seen
/// and with the most query blocks of a batch; a call with nothing larger than before allocates nothing.
class Attention {
 public:
  explicit Attention(ThreadPool& pool);

  /// Throws OpError for begins or ends that are none, before any work.
  void run(ConstTensorView qkv, const AttentionSpans& spans, const AttentionParams& params, TensorView out);

  /// A block of queries of one sequence, for the query heads of one kv head.
  struct Block {
    std::int64_t sequence_begin;  // row of the batch
    std::int64_t kv_head;
    std::int64_t first_query;  // in the sequence
    std::int64_t num_queries;
  };

 private:
  void cut_into_blocks(const AttentionSpans& spans, const HeadLayout& heads, std::int64_t block_queries);

  ThreadPool& pool_;
  std::vector<RunningAttention> running_;  // [num_threads]
  std::vector<Block> blocks_;
};

/// Throws OpError for rows outside the cache, before any work.
void store_kv(ThreadPool& pool, ConstTensorView qkv, const HeadLayout& heads, const CacheRows& rows,
              TensorView cache);

/// Attention of rows whose keys and values are in a cache. Scratch grows as Attention's.
class CachedAttention {
 public:
  explicit CachedAttention(ThreadPool& pool);

  /// Throws OpError for rows outside the cache and for ends that are none, before any work.
  void run(ConstTensorView qkv, const CacheRows& rows, ConstTensorView cache, const AttentionParams& params,
           TensorView out);

  /// Rows of the batch at positions of one sequence one after another, or rows of no sequence.
  struct Block {
    std::int64_t first_row;
    std::int64_t num_rows;
  };

 private:
  void cut_into_blocks(const CacheRows& rows, std::int64_t block_rows);

  ThreadPool& pool_;
  std::vector<RunningAttention> running_;  // [num_threads]
  std::vector<Block> blocks_;
};

/// Ops::unembed and the scratch memory that its threads need. Scratch grows with the widest table seen.
class Unembed {
 public:
  explicit Unembed(ThreadPool& pool);

  void run(ConstTensorView x, ConstTensorView table, TensorView out);

 private:
  ThreadPool& pool_;
  std::vector<std::vector<float>> panels_;  // [num_threads], each of some rows of the table
};

}  // namespace gemmad::cpu
