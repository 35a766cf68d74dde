// The set of operations that the model is written against. kernels/cpu implements it; another device can,
// without a change to the model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "kernels/base/memory.h"
#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"
#include "kernels/device.h"

namespace gemmad {

struct PeerAddends;

/// An operation was called with shapes, types or values that it does not take. what() names operation,
/// argument, what it is and what it must be. Nothing was computed.
class OpError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// How one row of a fused projection, (H + 2K) S wide, is cut into heads: into K groups, one after another,
/// each the H/K query heads that read one kv head, then its key, then its value, each S wide. So any run of
/// groups is a run of columns, and of rows of the projection's weight.
struct HeadLayout {
  std::int64_t num_heads = 0;     // H, a multiple of K
  std::int64_t num_kv_heads = 0;  // K
  std::int64_t head_dim = 0;      // S, even

  std::int64_t q_width() const { return num_heads * head_dim; }
  std::int64_t kv_width() const { return num_kv_heads * head_dim; }
  std::int64_t qkv_width() const { return q_width() + 2 * kv_width(); }

  std::int64_t queries_per_kv_head() const { return num_heads / num_kv_heads; }
  std::int64_t group_width() const { return (queries_per_kv_head() + 2) * head_dim; }
  /// The first column of a query head, of a kv head's key, of its value.
  std::int64_t q_column(std::int64_t head) const {
    return head / queries_per_kv_head() * group_width() + head % queries_per_kv_head() * head_dim;
  }
  std::int64_t k_column(std::int64_t kv_head) const {
    return kv_head * group_width() + queries_per_kv_head() * head_dim;
  }
  std::int64_t v_column(std::int64_t kv_head) const { return k_column(kv_head) + head_dim; }
};

/// What attention sees.
struct AttentionParams {
  HeadLayout heads;
  float scale = 1;  // factor of the scores, before the softmax; positive
  std::int64_t window =
      0;  // a query sees at most this many keys, itself included; 0: all before it and itself
};

/// Which rows of a batch of packed sequences attention lets row n see: those from begins[n], where its
/// sequence begins, up to ends[n], its window apart. The caller has checked them; else undefined on a device,
/// OpError on the CPU.
struct AttentionSpans {
  ConstTensorView begins;  // [N] I32; rises, begins[n] <= n, and a sequence's first row has itself
  ConstTensorView ends;    // [N] I32; rises, n < ends[n] <= the end of the sequence. No data: n + 1, causal
};

/// Where rows of sequences stand that go on from pass to pass, their keys and values kept in a cache: each
/// sequence has a slot there. The caller has checked them; else undefined on a device, OpError on the CPU.
struct CacheRows {
  ConstTensorView slots;      // [N] I32; below 0: a row of no sequence, which stores nothing and sees nothing
  ConstTensorView positions;  // [N] I32; of the row in its sequence, from 0
  ConstTensorView ends;       // [N] I32; the first position that the row does not see, above its own
  /// The caller's word: all rows are of one slot, at positions one after another, but for rows of no sequence
  /// at the end. Devices may be faster then.
  bool is_chunk = false;
};

/// What a product may end with.
enum class Activation : std::uint8_t { kNone, kGelu /* gelu_tanh, as in Ops::geglu */ };

/// Which elements of a head rotary embeddings turn together, and by which of the C/2 frequencies of all heads
/// (C = H S): i with i + S/2 of head h by frequency h S/2 + i; or 2i with 2i + 1 of all C by frequency i.
enum class RopePairs : std::uint8_t { kHalves, kNeighbours };

/// Operations on tensors of one device. All tensors are in memory() unless called "host"; all are contiguous,
/// except that the rows of a MatrixView may lie apart.
///
/// Every operation is asynchronous on `stream` (the CPU's are complete on return), allocates nothing, and is
/// called by one thread at a time. Arguments are checked before any work: OpError. Activations and weights
/// have compute_dtype() unless said otherwise; sums are accumulated in fp32 or wider, and every tensor named
/// here is rounded to its type once. The same call on the same bytes gives the same bytes. Row n of a result
/// depends on row n of the inputs alone (in attention: on its sequence), except that a device may sum in an
/// order that depends on N, and in attention on where the sequence lies.
class Ops : public Device {
 public:
  /// Makes a host table ready for embed(). Where the device reads host memory, the result is `host` itself,
  /// held through `host_owner`, in its own dtype; elsewhere it is a copy in `storage`. `host`: [V, D], BF16,
  /// F16 or F32.
  struct Table {
    ConstTensorView view;
    Buffer storage;                          // empty where nothing was copied
    std::shared_ptr<const void> host_owner;  // empty where it was copied
  };
  virtual Table make_table(ConstTensorView host, std::shared_ptr<const void> host_owner) = 0;

  /// dst := convert(host_src). Same shape. Any equal types, or dst F32 (exact) or BF16 (rounded) from host
  /// BF16, F16 or F32. `host_src` may be changed or freed on return.
  void upload(TensorView dst, ConstTensorView host_src, Stream stream);

  /// The same for a matrix of which `host_src` may be a part. dst [rows, columns].
  void upload_matrix(TensorView dst, ConstMatrixView host_src, Stream stream);

  /// The same for several matrices on top of each other, as wide as dst. dst [rows of all, columns]. Faster
  /// than one after the other.
  void upload_stack(TensorView dst, std::span<const ConstMatrixView> host_parts, Stream stream);

  /// host_dst := src. Same shape and type. Complete only after synchronize(stream).
  void copy_to_host(TensorView host_dst, ConstTensorView src, Stream stream);

  /// out[n, :] = scale * table[ids[n], :]; `scale` is rounded to the compute type first. ids [N] I32, each in
  /// [0, V) (the caller has checked them; out of range is undefined on a device, OpError on the CPU); table
  /// [V, D] as from make_table; out [N, D].
  void embed(ConstTensorView ids, ConstTensorView table, float scale, TensorView out, Stream stream);

  /// out = x * rsqrt(mean(x^2) + eps) * (1 + weight), over the last axis. x, out [N, D], may be the same;
  /// weight [D]; one without data counts as zeros.
  void rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView out, Stream stream);

  /// A branch's end, its residual add, and the norm that the next branch begins with:
  ///   x_out = x + rms_norm(y, weight);  normed = rms_norm(x_out, next_weight), unless `normed` has no data.
  /// rms_norm(y, weight) is a tensor of its own: it is rounded. y, x, x_out, normed [N, D]; weights [D].
  /// x_out may be x; otherwise none of them overlap. With `peers`, y is the sum of the peers' addends, in
  /// their order, of which `y` is this device's own (kernels/base/peer_addends.h); it must outlive the call.
  struct AddNorm {
    ConstTensorView y;
    const PeerAddends* peers = nullptr;
    ConstTensorView weight;
    ConstTensorView x;
    TensorView x_out;
    ConstTensorView next_weight;
    TensorView normed;
    float eps = 0;
  };
  void add_norm(const AddNorm& args, Stream stream);

  /// y = x W^T. x [N, I], w [O, I], y [N, O]. w and y may be parts of larger matrices; what surrounds y
  /// there is not written. y is overwritten; its span, from first byte to last, overlaps neither x nor w's.
  void gemm(ConstTensorView x, ConstMatrixView w, MatrixView y, Stream stream);

  /// out = geglu(x gate_up^T), with geglu()'s layout of gate_up's rows. x [N, D], gate_up [2F, D], out [N,
  /// F]. `scratch` [N, 2F] may or may not be written; nothing overlaps.
  void gemm_geglu(ConstTensorView x, ConstMatrixView gate_up, std::int64_t block, TensorView scratch,
                  TensorView out, Stream stream);

  /// Finds the fastest way to compute gemm(x, w, y) for all of `weights`, matrices of one shape that are used
  /// one after another, and uses it from then on; `geglu_block`, where it is not 0, stands for gemm_geglu
  /// with that block, with y as scratch. x and y are any memory of the right shapes; y is overwritten.
  /// Blocks.
  virtual void tune_gemm(ConstTensorView x, std::span<const ConstMatrixView> weights, MatrixView y,
                         std::int64_t geglu_block) = 0;
  /// Takes up what was kept before, by this process or another.
  virtual void load_tuning() = 0;
  /// Keeps what tune_gemm found for the next start, where the device has a place for it. Returns what went
  /// wrong, if anything.
  virtual std::optional<std::string> save_tuning() = 0;

  /// For each q head and each k head: rms_norm over S, then RoPE at its row's position; v is left alone. In
  /// place. Rotation of the halves: (a, b) -> (a cos - b sin, b cos + a sin), a = element i, b = element i +
  /// S/2. qkv [N, (H + 2K) S] as HeadLayout cuts it; q_weight, k_weight [S]; rope [P, S], row p = S/2
  /// cosines, then S/2 sines (kernels/rope_table.h); positions [N] I32, each in [0, P).
  void norm_rope(TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight, ConstTensorView k_weight,
                 float eps, ConstTensorView rope, ConstTensorView positions, Stream stream);

  /// out = softmax(scale * q k^T) v for each head over packed sequences, within the window. q head j reads kv
  /// head j / (H / K). qkv [N, (H + 2K) S] as HeadLayout cuts it, with q and k as they are to be multiplied;
  /// out [N, H S], head by head; what each row sees as AttentionSpans says.
  void attention(ConstTensorView qkv, const AttentionSpans& spans, const AttentionParams& params,
                 TensorView out, Stream stream);

  /// Keeps keys and values: cache[slots[n], positions[n] % P] = row n's keys, head by head, then its values.
  /// qkv [N, (H + 2K) S] as HeadLayout cuts it, with k as it is to be multiplied; cache [slots, P, 2 K S].
  void store_kv(ConstTensorView qkv, const HeadLayout& heads, const CacheRows& rows, TensorView cache,
                Stream stream);

  /// As attention(), with keys and values from the cache: row n sees the positions from max(0, positions[n] -
  /// window + 1) (without a window from 0) to ends[n] of its slot, all of which are stored there, its own
  /// too. Between the first and the last that it sees lie less than P. Rows of no sequence become zeros. What
  /// the cache holds elsewhere may be anything, NaN too.
  void attention_cached(ConstTensorView qkv, const CacheRows& rows, ConstTensorView cache,
                        const AttentionParams& params, TensorView out, Stream stream);

  /// out = gelu_tanh(gate) * up. gate_up [N, 2F], a row = F / block blocks, one after another, each `block`
  /// columns of gate, then the same `block` columns of up; out [N, F]. `block` is positive and divides F.
  /// gelu_tanh(g) = g / 2 (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))) = g / (1 + exp(-2 sqrt(2/pi) (g +
  /// 0.044715 g^3))).
  void geglu(ConstTensorView gate_up, std::int64_t block, TensorView out, Stream stream);

  /// The tied head: out[n, v] = x[n] . table[v]. x [N, D]; table [V, D] as from make_table, or some rows of
  /// it; out [N, V].
  void unembed(ConstTensorView x, ConstTensorView table, TensorView out, Stream stream);

  /// dst := src, both here. Same shape and type; they do not overlap.
  void copy(TensorView dst, ConstTensorView src, Stream stream);

  // What follows looks at images.

  /// out = (x - mean(x)) * rsqrt(var(x) + eps) * weight + bias, over the last axis; var without Bessel's
  /// correction. x, out [N, D], may be the same; weight, bias [D].
  void layer_norm(ConstTensorView x, ConstTensorView weight, ConstTensorView bias, float eps, TensorView out,
                  Stream stream);

  /// The mean of squares of a grid, row by row: out[i (G/k) + j, :] = mean of x[(i k + a) G + j k + b, :] over
  /// a, b in [0, k). x [G G, C], out [(G/k)^2, C]; k divides G.
  void pool_squares(ConstTensorView x, std::int64_t k, TensorView out, Stream stream);

  // What follows turns hidden states into a diffusion transformer's embeddings.

  /// y = activation(x W^T + bias) + add. x [N, I]; w [O, I]; bias [O], add [N, O]: no data, nothing is added;
  /// y [N, O], may be `add`, overlaps nothing else.
  struct Linear {
    ConstTensorView x;
    ConstTensorView w;
    ConstTensorView bias;
    Activation activation = Activation::kNone;
    ConstTensorView add;
    TensorView y;
  };
  void linear(const Linear& args, Stream stream);

  /// sums = x W^T, or sums += x W^T with `adds`. x [N, I], w [O, I], sums [N, O] F32, which overlaps neither.
  void gemm_sums(ConstTensorView x, ConstTensorView w, bool adds, TensorView sums, Stream stream);

  /// out = sums + bias. sums [N, C] F32; bias [C], no data: nothing; out [N, C].
  void add_bias(ConstTensorView sums, ConstTensorView bias, TensorView out, Stream stream);

  /// out[m, :] = factor * x[rows[m], :] * rsqrt(mean(x[rows[m], :]^2) + eps). x [N, D]; rows [M] I32, each in
  /// [0, N) (the caller has checked them); out [M, D]. In bf16 the square, the mean, mean + eps, the root and
  /// the product before the factor are rounded too (spec: LTX-2's V2 extractor).
  void rms_rows(ConstTensorView x, ConstTensorView rows, float factor, float eps, TensorView out,
                Stream stream);

  /// For each sequence b, rows [bounds[b], bounds[b+1]) of out, over all its rows and columns at once:
  ///   out[m, :] = 8 (x[rows[m], :] - mean_b) / (max_b - min_b + eps)
  /// x [N, D]; rows [M] I32 as in rms_rows; bounds [B+1] I32 from 0 to M, rising; out [M, D]; scratch
  /// [B, kRangeScratch] F32. In bf16 the sum behind the mean, max - min and that + eps are rounded too (spec:
  /// LTX-2's V1 extractor).
  void range_rows(ConstTensorView x, ConstTensorView rows, ConstTensorView bounds, float eps,
                  TensorView scratch, TensorView out, Stream stream);
  static constexpr std::int64_t kRangeScratch = 384;

  /// Sequences of S rows each: features first, then registers, each at its own place.
  ///   out[b S + p, :] = features[bounds[b] + p, :] for p < bounds[b+1] - bounds[b], else registers[p % R, :]
  /// features [M, C]; bounds [B+1] I32 from 0 to M, rising by at most S; registers [R, C]; out [B S, C].
  void fill_registers(ConstTensorView features, ConstTensorView bounds, ConstTensorView registers,
                      TensorView out, Stream stream);

  /// q := rope(rms_norm(q) * q_weight), the norm over all heads of a row at once; k likewise; v is left
  /// alone. In place. qkv [N, 3C] as HeadLayout cuts it with as many kv heads as heads, C = H S; q_weight,
  /// k_weight [C], head by head; rope [P, C], row p = C/2 cosines, then C/2 sines; row n has position n % P.
  /// Rotation as in norm_rope; in bf16 the first product of each sum is rounded, with kNeighbours the second
  /// too.
  void norm_rope_across(TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight,
                        ConstTensorView k_weight, float eps, ConstTensorView rope, RopePairs pairs,
                        Stream stream);

  /// x[n, h S + i] *= 2 sigmoid(logits[n, h]); in bf16 the sigmoid is rounded. x [N, H S], logits [N, H].
  void gate_heads(TensorView x, ConstTensorView logits, Stream stream);

 protected:
  // The computations; arguments have been checked.
  virtual void do_upload(TensorView dst, std::span<const ConstMatrixView> host_parts, Stream stream) = 0;
  virtual void do_copy_to_host(TensorView host_dst, ConstTensorView src, Stream stream) = 0;
  virtual void do_embed(ConstTensorView ids, ConstTensorView table, float scale, TensorView out,
                        Stream stream) = 0;
  virtual void do_rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView out,
                           Stream stream) = 0;
  virtual void do_add_norm(const AddNorm& args, Stream stream) = 0;
  virtual void do_gemm(ConstTensorView x, ConstMatrixView w, MatrixView y, Stream stream) = 0;
  virtual void do_gemm_geglu(ConstTensorView x, ConstMatrixView gate_up, std::int64_t block,
                             TensorView scratch, TensorView out, Stream stream) = 0;
  virtual void do_norm_rope(TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight,
                            ConstTensorView k_weight, float eps, ConstTensorView rope,
                            ConstTensorView positions, Stream stream) = 0;
  virtual void do_attention(ConstTensorView qkv, const AttentionSpans& spans, const AttentionParams& params,
                            TensorView out, Stream stream) = 0;
  virtual void do_geglu(ConstTensorView gate_up, std::int64_t block, TensorView out, Stream stream) = 0;
  virtual void do_store_kv(ConstTensorView qkv, const HeadLayout& heads, const CacheRows& rows,
                           TensorView cache, Stream stream) = 0;
  virtual void do_attention_cached(ConstTensorView qkv, const CacheRows& rows, ConstTensorView cache,
                                   const AttentionParams& params, TensorView out, Stream stream) = 0;
  virtual void do_unembed(ConstTensorView x, ConstTensorView table, TensorView out, Stream stream) = 0;
  virtual void do_copy(TensorView dst, ConstTensorView src, Stream stream) = 0;
  virtual void do_layer_norm(ConstTensorView x, ConstTensorView weight, ConstTensorView bias, float eps,
                             TensorView out, Stream stream) = 0;
  virtual void do_pool_squares(ConstTensorView x, std::int64_t k, TensorView out, Stream stream) = 0;
  virtual void do_linear(const Linear& args, Stream stream) = 0;
  virtual void do_gemm_sums(ConstTensorView x, ConstTensorView w, bool adds, TensorView sums,
                            Stream stream) = 0;
  virtual void do_add_bias(ConstTensorView sums, ConstTensorView bias, TensorView out, Stream stream) = 0;
  virtual void do_rms_rows(ConstTensorView x, ConstTensorView rows, float factor, float eps, TensorView out,
                           Stream stream) = 0;
  virtual void do_range_rows(ConstTensorView x, ConstTensorView rows, ConstTensorView bounds, float eps,
                             TensorView scratch, TensorView out, Stream stream) = 0;
  virtual void do_fill_registers(ConstTensorView features, ConstTensorView bounds, ConstTensorView registers,
                                 TensorView out, Stream stream) = 0;
  virtual void do_norm_rope_across(TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight,
                                   ConstTensorView k_weight, float eps, ConstTensorView rope, RopePairs pairs,
                                   Stream stream) = 0;
  virtual void do_gate_heads(TensorView x, ConstTensorView logits, Stream stream) = 0;
};

}  // namespace gemmad
