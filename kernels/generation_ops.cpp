// The launchers of what generates text and of what looks at images.
#include "kernels/op_checks.h"
#include "kernels/ops.h"

namespace gemmad {
namespace {

void check_cache(const Checker& check, const HeadLayout& heads, ConstTensorView qkv, const CacheRows& rows,
                 ConstTensorView cache) {
  check_heads(check, heads);
  check.rank("qkv", qkv, 2);
  check.rank("cache", cache, 3);
  const Shape per_row{qkv.shape[0]};
  check.tensor("qkv", qkv, Shape{qkv.shape[0], heads.qkv_width()});
  check.tensor("slots", rows.slots, per_row, DType::kI32);
  check.tensor("positions", rows.positions, per_row, DType::kI32);
  check.tensor("ends", rows.ends, per_row, DType::kI32);
  check.tensor("cache", cache, Shape{cache.shape[0], cache.shape[1], 2 * heads.kv_width()});
  if (cache.shape[1] < 1) check.fail("cache has shape " + cache.shape.text() + ", must have positions");
}

// The side of a square of `rows` rows, or of the largest that is less.
std::int64_t side_of(std::int64_t rows) {
  std::int64_t side = 0;
  while ((side + 1) <= rows / (side + 1))
    ++side;
  return side;
}

}  // namespace

void Ops::store_kv(ConstTensorView qkv, const HeadLayout& heads, const CacheRows& rows, TensorView cache,
                   Stream stream) {
  const Checker check("store_kv", compute_dtype());
  check_cache(check, heads, qkv, rows, cache);
  check.apart("cache", cache, "qkv", qkv);
  do_store_kv(qkv, heads, rows, cache, stream);
}

void Ops::attention_cached(ConstTensorView qkv, const CacheRows& rows, ConstTensorView cache,
                           const AttentionParams& params, TensorView out, Stream stream) {
  const Checker check("attention_cached", compute_dtype());
  check_cache(check, params.heads, qkv, rows, cache);
  check.tensor("out", out, Shape{qkv.shape[0], params.heads.q_width()});
  check.apart("out", out, "qkv", qkv);
  check.apart("out", out, "cache", cache);
  check_scale(check, params.scale);
  check_window(check, params.window);
  do_attention_cached(qkv, rows, cache, params, out, stream);
}

void Ops::unembed(ConstTensorView x, ConstTensorView table, TensorView out, Stream stream) {
  const Checker check("unembed", compute_dtype());
  check.rank("x", x, 2);
  check.rank("table", table, 2);
  check.tensor("x", x, x.shape);
  check_table(check, table);
  check.tensor("table", table, Shape{table.shape[0], x.shape[1]}, table.dtype);
  check.tensor("out", out, Shape{x.shape[0], table.shape[0]});
  check.apart("out", out, "x", x);
  check.apart("out", out, "table", table);
  do_unembed(x, table, out, stream);
}

void Ops::copy(TensorView dst, ConstTensorView src, Stream stream) {
  const Checker check("copy", compute_dtype());
  check.tensor("src", src, src.shape, src.dtype);
  check.tensor("dst", dst, src.shape, src.dtype);
  check.apart("dst", dst, "src", src);
  do_copy(dst, src, stream);
}

void Ops::layer_norm(ConstTensorView x, ConstTensorView weight, ConstTensorView bias, float eps,
                     TensorView out, Stream stream) {
  const Checker check("layer_norm", compute_dtype());
  check.rank("x", x, 2);
  check.tensor("x", x, x.shape);
  check.tensor("weight", weight, Shape{x.shape[1]});
  check.tensor("bias", bias, Shape{x.shape[1]});
  check.tensor("out", out, x.shape);
  check_eps(check, eps);
  if (out.data != x.data) check.apart("out", out, "x", x);
  do_layer_norm(x, weight, bias, eps, out, stream);
}

void Ops::pool_squares(ConstTensorView x, std::int64_t k, TensorView out, Stream stream) {
  const Checker check("pool_squares", compute_dtype());
  check.rank("x", x, 2);
  check.tensor("x", x, x.shape);
  const std::int64_t side = side_of(x.shape[0]);
  if (side * side != x.shape[0])
    check.fail("x has " + std::to_string(x.shape[0]) + " rows, must have a square's");
  if (!(k > 0 && side % k == 0)) {
    check.fail("k is " + std::to_string(k) + ", must be positive and divide the grid's side, " +
               std::to_string(side));
  }
  check.tensor("out", out, Shape{(side / k) * (side / k), x.shape[1]});
  check.apart("out", out, "x", x);
  do_pool_squares(x, k, out, stream);
}

}  // namespace gemmad
