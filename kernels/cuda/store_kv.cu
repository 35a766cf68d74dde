#include "kernels/cuda/bf16.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/row_grid.h"

namespace gemmad::cuda {
namespace {

constexpr int kThreads = 256;

struct StoreArgs {
  const Bf16* qkv;
  const std::int32_t* slots;
  const std::int32_t* positions;
  Bf16* cache;
  std::int64_t capacity;  // positions of a slot
  int queries;            // of a kv head
  int head_dim;
  int kv_width;
};

/// One thread for Pack columns of a row of the cache; Pack divides the head size. Slots and positions no
/// kernel writes.
template <int Pack>
__global__ __launch_bounds__(kThreads) void store_rows(const StoreArgs args) {
  let_next_start();
  const std::int64_t row = blockIdx.x;
  const int column = static_cast<int>(first_column<Pack>());
  const std::int64_t slot = args.slots[row];
  const std::int64_t position = args.positions[row];
  wait_for_previous();
  if (column >= 2 * args.kv_width || slot < 0) return;
  const int part = column / args.kv_width;  // keys or values
  const int head = column % args.kv_width / args.head_dim;
  const std::int64_t group_width = std::int64_t{args.queries + 2} * args.head_dim;
  const std::int64_t row_width = args.kv_width / args.head_dim * group_width;
  const Bf16* from = args.qkv + row * row_width + head * group_width +
                     std::int64_t{args.queries + part} * args.head_dim + column % args.head_dim;
  Bf16* to = args.cache + (slot * args.capacity + position % args.capacity) * 2 * args.kv_width + column;
  *reinterpret_cast<Bf16Pack<Pack>*>(to) = *reinterpret_cast<const Bf16Pack<Pack>*>(from);
}

}  // namespace

void store_kv(ConstTensorView qkv, const HeadLayout& heads, const CacheRows& rows, TensorView cache,
              cudaStream_t stream) {
  const std::int64_t num_rows = qkv.shape[0];
  if (num_rows == 0 || cache.shape.num_elements() == 0) return;
  StoreArgs args{};
  args.qkv = qkv.as<Bf16>();
  args.slots = rows.slots.as<std::int32_t>();
  args.positions = rows.positions.as<std::int32_t>();
  args.cache = cache.as<Bf16>();
  args.capacity = cache.shape[1];
  args.queries = static_cast<int>(heads.queries_per_kv_head());
  args.head_dim = static_cast<int>(heads.head_dim);
  args.kv_width = static_cast<int>(heads.kv_width());
  const int pack = heads.head_dim % 8 == 0 && is_aligned({qkv.data, cache.data}) ? 8 : 1;
  launch("launch store_kv", pack == 8 ? store_rows<8> : store_rows<1>,
         {row_grid(num_rows, 2 * heads.kv_width(), pack, kThreads), dim3(kThreads)}, stream, args);
}

}  // namespace gemmad::cuda
