// The launchers: every check once, before any work, then the device's computation. Those of generation and
// images are in generation_ops.cpp.
#include "kernels/ops.h"

#include <limits>

#include "kernels/op_checks.h"

namespace gemmad {
namespace {

// A matrix from its first byte to its last, as bytes.
ConstTensorView span_of(const ConstMatrixView& matrix) {
  return {matrix.data, DType::kU8, {static_cast<std::int64_t>(matrix.span_bytes())}};
}

void check_conversion(const Checker& check, DType from, DType to) {
  if (!(from == to || ((to == DType::kF32 || to == DType::kBF16) && is_float(from))))
    check.fail("no conversion from " + std::string(name(from)) + " to " + std::string(name(to)));
}

}  // namespace

void Ops::upload(TensorView dst, ConstTensorView host_src, Stream stream) {
  const Checker check("upload", compute_dtype());
  check.tensor("host_src", host_src, dst.shape, host_src.dtype);
  check.tensor("dst", dst, dst.shape, dst.dtype);
  check_conversion(check, host_src.dtype, dst.dtype);
  check.apart("dst", dst, "host_src", host_src);
  // Contiguous, so that its rows are of no account: one long one.
  const std::int64_t count = dst.shape.num_elements();
  const ConstMatrixView row{host_src.data, host_src.dtype, 1, count, count};
  do_upload(dst, std::span(&row, 1), stream);
}

void Ops::upload_matrix(TensorView dst, ConstMatrixView host_src, Stream stream) {
  const Checker check("upload_matrix", compute_dtype());
  check.matrix("host_src", host_src, host_src.rows, host_src.columns, host_src.dtype);
  check.tensor("dst", dst, Shape{host_src.rows, host_src.columns}, dst.dtype);
  check_conversion(check, host_src.dtype, dst.dtype);
  check.apart("dst", dst, "host_src", span_of(host_src));
  do_upload(dst, std::span(&host_src, 1), stream);
}

void Ops::upload_stack(TensorView dst, std::span<const ConstMatrixView> host_parts, Stream stream) {
  const Checker check("upload_stack", compute_dtype());
  check.rank("dst", dst, 2);
  std::int64_t rows = 0;
  for (const ConstMatrixView& part : host_parts) {
    check.matrix("a part", part, part.rows, dst.shape[1], part.dtype);
    check_conversion(check, part.dtype, dst.dtype);
    check.apart("dst", dst, "a part", span_of(part));
    rows += part.rows;
  }
  check.tensor("dst", dst, Shape{rows, dst.shape[1]}, dst.dtype);
  do_upload(dst, host_parts, stream);
}

void Ops::copy_to_host(TensorView host_dst, ConstTensorView src, Stream stream) {
  const Checker check("copy_to_host", compute_dtype());
  check.tensor("src", src, src.shape, src.dtype);
  check.tensor("host_dst", host_dst, src.shape, src.dtype);
  check.apart("host_dst", host_dst, "src", src);
  do_copy_to_host(host_dst, src, stream);
}

void Ops::embed(ConstTensorView ids, ConstTensorView table, float scale, TensorView out, Stream stream) {
  const Checker check("embed", compute_dtype());
  check.rank("table", table, 2);
  check.rank("ids", ids, 1);
  check.tensor("ids", ids, ids.shape, DType::kI32);
  check_table(check, table);
  check.tensor("table", table, table.shape, table.dtype);
  check.tensor("out", out, Shape{ids.shape[0], table.shape[1]});
  do_embed(ids, table, scale, out, stream);
}

void Ops::rms_norm(ConstTensorView x, ConstTensorView weight, float eps, TensorView out, Stream stream) {
  const Checker check("rms_norm", compute_dtype());
  check.rank("x", x, 2);
  check.tensor("x", x, x.shape);
  if (weight.data != nullptr) check.tensor("weight", weight, Shape{x.shape[1]});
  check.tensor("out", out, x.shape);
  check_eps(check, eps);
  if (out.data != x.data) check.apart("out", out, "x", x);
  do_rms_norm(x, weight, eps, out, stream);
}

void Ops::add_norm(const AddNorm& args, Stream stream) {
  const Checker check("add_norm", compute_dtype());
  const Shape& shape = args.y.shape;
  check.rank("y", args.y, 2);
  check.tensor("y", args.y, shape);
  check.tensor("weight", args.weight, Shape{shape[1]});
  check.tensor("x", args.x, shape);
  check.tensor("x_out", args.x_out, shape);
  check_eps(check, args.eps);
  check.apart("x", args.x, "y", args.y);
  check.apart("x_out", args.x_out, "y", args.y);
  if (args.x_out.data != args.x.data) check.apart("x_out", args.x_out, "x", args.x);
  if (args.normed.data != nullptr) {
    check.tensor("next_weight", args.next_weight, Shape{shape[1]});
    check.tensor("normed", args.normed, shape);
    check.apart("normed", args.normed, "x", args.x);
    check.apart("normed", args.normed, "y", args.y);
    check.apart("normed", args.normed, "x_out", args.x_out);
  }
  do_add_norm(args, stream);
}

void Ops::gemm(ConstTensorView x, ConstMatrixView w, MatrixView y, Stream stream) {
  const Checker check("gemm", compute_dtype());
  check.rank("x", x, 2);
  check.tensor("x", x, x.shape);
  check.matrix("w", w, w.rows, x.shape[1], compute_dtype());
  check.matrix("y", y, x.shape[0], w.rows, compute_dtype());
  for (std::int64_t extent : {x.shape[0], x.shape[1], w.rows, w.row_stride, y.row_stride}) {
    if (!(extent <= std::numeric_limits<std::int32_t>::max()))
      check.fail("an extent or stride is " + std::to_string(extent) + ", must fit in 32 bits");
  }
  check.apart("y", span_of(y), "x", x);
  check.apart("y", span_of(y), "w", span_of(w));
  do_gemm(x, w, y, stream);
}

void Ops::gemm_geglu(ConstTensorView x, ConstMatrixView gate_up, std::int64_t block, TensorView scratch,
                     TensorView out, Stream stream) {
  const Checker check("gemm_geglu", compute_dtype());
  check.rank("x", x, 2);
  check.tensor("x", x, x.shape);
  check.matrix("gate_up", gate_up, gate_up.rows, x.shape[1], compute_dtype());
  check.tensor("scratch", scratch, Shape{x.shape[0], gate_up.rows});
  check.tensor("out", out, Shape{x.shape[0], gate_up.rows / 2});
  if (!(block > 0 && gate_up.rows % (2 * block) == 0)) {
    check.fail("block is " + std::to_string(block) +
               ", must be positive and twice it divide gate_up's rows, " + std::to_string(gate_up.rows));
  }
  check.apart("out", out, "x", x);
  check.apart("out", out, "scratch", scratch);
  check.apart("scratch", scratch, "x", x);
  do_gemm_geglu(x, gate_up, block, scratch, out, stream);
}

void Ops::norm_rope(TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight,
                    ConstTensorView k_weight, float eps, ConstTensorView rope, ConstTensorView positions,
                    Stream stream) {
  const Checker check("norm_rope", compute_dtype());
  check_heads(check, heads);
  check.rank("qkv", qkv, 2);
  check.tensor("qkv", qkv, Shape{qkv.shape[0], heads.qkv_width()});
  check.tensor("q_weight", q_weight, Shape{heads.head_dim});
  check.tensor("k_weight", k_weight, Shape{heads.head_dim});
  check_eps(check, eps);
  check.rank("rope", rope, 2);
  check.tensor("rope", rope, Shape{rope.shape[0], heads.head_dim});
  check.tensor("positions", positions, Shape{qkv.shape[0]}, DType::kI32);
  do_norm_rope(qkv, heads, q_weight, k_weight, eps, rope, positions, stream);
}

void Ops::attention(ConstTensorView qkv, const AttentionSpans& spans, const AttentionParams& params,
                    TensorView out, Stream stream) {
  const Checker check("attention", compute_dtype());
  check_heads(check, params.heads);
  check.rank("qkv", qkv, 2);
  check.tensor("qkv", qkv, Shape{qkv.shape[0], params.heads.qkv_width()});
  check.tensor("begins", spans.begins, Shape{qkv.shape[0]}, DType::kI32);
  if (spans.ends.data != nullptr) check.tensor("ends", spans.ends, Shape{qkv.shape[0]}, DType::kI32);
  check.tensor("out", out, Shape{qkv.shape[0], params.heads.q_width()});
  check.apart("out", out, "qkv", qkv);
  check_scale(check, params.scale);
  check_window(check, params.window);
  do_attention(qkv, spans, params, out, stream);
}

void Ops::geglu(ConstTensorView gate_up, std::int64_t block, TensorView out, Stream stream) {
  const Checker check("geglu", compute_dtype());
  check.rank("gate_up", gate_up, 2);
  check.rank("out", out, 2);
  check.tensor("gate_up", gate_up, Shape{out.shape[0], 2 * out.shape[1]});
  check.tensor("out", out, out.shape);
  if (!(block > 0 && out.shape[1] % block == 0)) {
    check.fail("block is " + std::to_string(block) + ", must be positive and divide out's columns, " +
               std::to_string(out.shape[1]));
  }
  check.apart("out", out, "gate_up", gate_up);
  do_geglu(gate_up, block, out, stream);
}

void Ops::linear(const Linear& args, Stream stream) {
  const Checker check("linear", compute_dtype());
  check.rank("x", args.x, 2);
  check.rank("w", args.w, 2);
  const Shape out{args.x.shape[0], args.w.shape[0]};
  check.tensor("x", args.x, args.x.shape);
  check.tensor("w", args.w, Shape{out[1], args.x.shape[1]});
  if (args.bias.data != nullptr) check.tensor("bias", args.bias, Shape{out[1]});
  if (args.add.data != nullptr) check.tensor("add", args.add, out);
  check.tensor("y", args.y, out);
  check.apart("y", args.y, "x", args.x);
  check.apart("y", args.y, "w", args.w);
  if (args.add.data != args.y.data) check.apart("y", args.y, "add", args.add);
  do_linear(args, stream);
}

void Ops::gemm_sums(ConstTensorView x, ConstTensorView w, bool adds, TensorView sums, Stream stream) {
  const Checker check("gemm_sums", compute_dtype());
  check.rank("x", x, 2);
  check.rank("w", w, 2);
  check.tensor("x", x, x.shape);
  check.tensor("w", w, Shape{w.shape[0], x.shape[1]});
  check.tensor("sums", sums, Shape{x.shape[0], w.shape[0]}, DType::kF32);
  check.apart("sums", sums, "x", x);
  check.apart("sums", sums, "w", w);
  do_gemm_sums(x, w, adds, sums, stream);
}

void Ops::add_bias(ConstTensorView sums, ConstTensorView bias, TensorView out, Stream stream) {
  const Checker check("add_bias", compute_dtype());
  check.rank("sums", sums, 2);
  check.tensor("sums", sums, sums.shape, DType::kF32);
  if (bias.data != nullptr) check.tensor("bias", bias, Shape{sums.shape[1]});
  check.tensor("out", out, sums.shape);
  check.apart("out", out, "sums", sums);
  do_add_bias(sums, bias, out, stream);
}

void Ops::rms_rows(ConstTensorView x, ConstTensorView rows, float factor, float eps, TensorView out,
                   Stream stream) {
  const Checker check("rms_rows", compute_dtype());
  check.rank("x", x, 2);
  check.rank("rows", rows, 1);
  check.tensor("x", x, x.shape);
  check.tensor("rows", rows, rows.shape, DType::kI32);
  check.tensor("out", out, Shape{rows.shape[0], x.shape[1]});
  check_eps(check, eps);
  check.apart("out", out, "x", x);
  do_rms_rows(x, rows, factor, eps, out, stream);
}

void Ops::range_rows(ConstTensorView x, ConstTensorView rows, ConstTensorView bounds, float eps,
                     TensorView scratch, TensorView out, Stream stream) {
  const Checker check("range_rows", compute_dtype());
  check.rank("x", x, 2);
  check.rank("rows", rows, 1);
  check.rank("scratch", scratch, 2);
  check.tensor("x", x, x.shape);
  check.tensor("rows", rows, rows.shape, DType::kI32);
  check.tensor("scratch", scratch, Shape{scratch.shape[0], kRangeScratch}, DType::kF32);
  check.tensor("bounds", bounds, Shape{scratch.shape[0] + 1}, DType::kI32);
  check.tensor("out", out, Shape{rows.shape[0], x.shape[1]});
  check_eps(check, eps);
  check.apart("out", out, "x", x);
  do_range_rows(x, rows, bounds, eps, scratch, out, stream);
}

void Ops::fill_registers(ConstTensorView features, ConstTensorView bounds, ConstTensorView registers,
                         TensorView out, Stream stream) {
  const Checker check("fill_registers", compute_dtype());
  check.rank("features", features, 2);
  check.rank("bounds", bounds, 1);
  check.rank("registers", registers, 2);
  check.rank("out", out, 2);
  const std::int64_t width = features.shape[1];
  check.tensor("features", features, features.shape);
  check.tensor("bounds", bounds, bounds.shape, DType::kI32);
  check.tensor("registers", registers, Shape{registers.shape[0], width});
  check.tensor("out", out, Shape{out.shape[0], width});
  const std::int64_t num_sequences = bounds.shape[0] - 1;
  if (num_sequences < 1 || registers.shape[0] < 1 || out.shape[0] % num_sequences != 0) {
    check.fail("out has " + std::to_string(out.shape[0]) + " rows for " + std::to_string(num_sequences) +
               " sequences and " + std::to_string(registers.shape[0]) +
               " registers; the rows must be a multiple of a sequence or more, and there must be a register");
  }
  check.apart("out", out, "features", features);
  do_fill_registers(features, bounds, registers, out, stream);
}

void Ops::norm_rope_across(TensorView qkv, const HeadLayout& heads, ConstTensorView q_weight,
                           ConstTensorView k_weight, float eps, ConstTensorView rope, RopePairs pairs,
                           Stream stream) {
  const Checker check("norm_rope_across", compute_dtype());
  check_heads(check, heads);
  if (heads.num_heads != heads.num_kv_heads) {
    check.fail("num_kv_heads is " + std::to_string(heads.num_kv_heads) + ", must be num_heads, " +
               std::to_string(heads.num_heads));
  }
  check.rank("qkv", qkv, 2);
  check.tensor("qkv", qkv, Shape{qkv.shape[0], heads.qkv_width()});
  check.tensor("q_weight", q_weight, Shape{heads.q_width()});
  check.tensor("k_weight", k_weight, Shape{heads.q_width()});
  check_eps(check, eps);
  check.rank("rope", rope, 2);
  check.tensor("rope", rope, Shape{rope.shape[0], heads.q_width()});
  if (rope.shape[0] < 1) check.fail("rope has no positions");
  do_norm_rope_across(qkv, heads, q_weight, k_weight, eps, rope, pairs, stream);
}

void Ops::gate_heads(TensorView x, ConstTensorView logits, Stream stream) {
  const Checker check("gate_heads", compute_dtype());
  check.rank("x", x, 2);
  check.rank("logits", logits, 2);
  check.tensor("x", x, x.shape);
  check.tensor("logits", logits, Shape{x.shape[0], logits.shape[1]});
  if (logits.shape[1] < 1 || x.shape[1] % logits.shape[1] != 0) {
    check.fail("x has " + std::to_string(x.shape[1]) + " columns, must be a multiple of logits', " +
               std::to_string(logits.shape[1]));
  }
  check.apart("x", x, "logits", logits);
  do_gate_heads(x, logits, stream);
}

}  // namespace gemmad
