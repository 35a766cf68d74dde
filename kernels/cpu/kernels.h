// The computations behind CpuOps, one file each. Arguments have been checked (kernels/ops.h says what they
// are); all tensors are fp32 unless said otherwise. Results do not depend on the number of threads, gemm's
// order of summation apart.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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

/// Throws OpError for a position outside the table, before any work.
void norm_rope(ThreadPool& pool, TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight,
               ConstTensorView k_weight, float eps, ConstTensorView rope, ConstTensorView positions);

void geglu(ThreadPool& pool, ConstTensorView gate_up, std::int64_t block, TensorView out);

/// Attention and the scratch memory that its threads need. Scratch grows with the largest head layout seen
/// and with the most query blocks of a batch; a call with nothing larger than before allocates nothing.
class Attention {
 public:
  explicit Attention(ThreadPool& pool);

  /// Throws OpError for begins that are none, before any work.
  void run(ConstTensorView qkv, ConstTensorView begins, const AttentionParams& params, TensorView out);

  /// A block of queries of one sequence, for the query heads of one kv head.
  struct Block {
    std::int64_t sequence_begin;  // row of the batch
    std::int64_t kv_head;
    std::int64_t first_query;  // in the sequence
    std::int64_t num_queries;
  };
  /// One thread's.
  struct Scratch {
    std::vector<float> queries;      // [rows, S]
    std::vector<float> scores;       // [rows, keys of a block]
    std::vector<float> accumulator;  // [rows, S]
    std::vector<float> row_max;      // [rows]
    std::vector<float> row_sum;      // [rows]
  };

 private:
  void cut_into_blocks(ConstTensorView begins, const HeadLayout& heads, std::int64_t block_queries);

  ThreadPool& pool_;
  std::vector<Scratch> scratch_;  // [num_threads]
  std::vector<Block> blocks_;
};

}  // namespace gemmad::cpu
