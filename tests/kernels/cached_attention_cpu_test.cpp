// Rows of caches that the CPU looks at and others must trust.
#include "kernels/cpu/cpu_ops.h"
#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

// Two rows, two slots of 8 positions.
struct Call {
  std::vector<std::int32_t> slots = {0, 1};
  std::vector<std::int32_t> positions = {3, 5};
  std::vector<std::int32_t> ends = {4, 6};
  bool is_chunk = false;
  std::int64_t window = 0;
};

class Calls {
 public:
  void store(const Call& call) {
    testing_.ops().store_kv(qkv_.view, heads_, put(call), cache_.view, testing_.stream());
  }
  void attend(const Call& call) {
    testing_.ops().attention_cached(qkv_.view, put(call), cache_.view, {heads_, 1, call.window}, out_.view,
                                    testing_.stream());
  }
  std::vector<float> cache() { return testing_.get(cache_.view); }
  std::vector<float> out() { return testing_.get(out_.view); }

 private:
  CacheRows put(const Call& call) {
    slots_ = testing_.put(call.slots);
    positions_ = testing_.put(call.positions);
    ends_ = testing_.put(call.ends);
    return {slots_.view, positions_.view, ends_.view, call.is_chunk};
  }

  OpTesting testing_;
  HeadLayout heads_{1, 1, 4};
  DeviceTensor qkv_ = testing_.put(random_values(24, 1), {2, 12});
  DeviceTensor cache_ = testing_.put(std::vector<float>(128, 9.0f), {2, 8, 8});
  DeviceTensor out_ = testing_.put(std::vector<float>(8, 9.0f), {2, 4});
  DeviceTensor slots_, positions_, ends_;
};

}  // namespace

TEST_CASE("store_kv and attention_cached on the CPU refuse rows outside the cache, before any work") {
  Calls calls;
  const auto check = [&](const Call& call, const std::string& problem) {
    CHECK_THROWS_WITH(calls.store(call), "store_kv: " + problem);
    CHECK_THROWS_WITH(calls.attend(call), "attention_cached: " + problem);
  };
  check({{0, 2}}, "slots[1] is 2, must be less than 2");
  check({{0, 1}, {3, -1}}, "positions[1] is -1, must be 0 or more");
  check({{0, 1}, {3, 5}, {4, 5}}, "ends[1] is 5, must be above the row's position, 5");
  CHECK(calls.cache() == std::vector<float>(128, 9.0f));
  CHECK(calls.out() == std::vector<float>(8, 9.0f));
  CHECK_THROWS_AS(calls.attend({{0, 1}, {3, 5}, {4, -1}}), OpError);
}

TEST_CASE("attention_cached on the CPU refuses to see more than the cache's positions") {
  Calls calls;
  calls.attend({{0, 1}, {3, 7}, {4, 8}});
  CHECK_THROWS_WITH(calls.attend({{0, 1}, {3, 8}, {4, 9}}),
                    "attention_cached: ends[1] is 9, must be at most 8: the cache has 8 positions");
  calls.attend({{0, 1}, {3, 2000000000}, {4, 2000000001}, false, 8});
  calls.attend({{0, 1}, {3, 20}, {4, 24}, false, 5});
  CHECK_THROWS_WITH(calls.attend({{0, 1}, {3, 20}, {4, 25}, false, 5}),
                    "attention_cached: ends[1] is 25, must be at most 24: the cache has 8 positions");
}

TEST_CASE("Rows of no sequence may stand anywhere") {
  Calls calls;
  calls.store({{-1, -2}, {-5, 2000000000}, {0, -9}});
  calls.attend({{-1, -2}, {-5, 2000000000}, {0, -9}});
  CHECK(calls.cache() == std::vector<float>(128, 9.0f));
  CHECK(calls.out() == std::vector<float>(8, 0.0f));
}

TEST_CASE("A chunk on the CPU must be one: rows of one slot at positions one after another") {
  Calls calls;
  calls.store({{1, 1}, {4, 5}, {5, 6}, true});
  calls.attend({{1, 1}, {4, 5}, {5, 6}, true});
  calls.store({{1, -1}, {4, 0}, {5, 1}, true});  // filled up
  const Call bad = GENERATE(Call{{0, 1}, {4, 5}, {5, 6}, true}, Call{{1, 1}, {4, 6}, {5, 7}, true},
                            Call{{1, 1}, {5, 4}, {6, 5}, true}, Call{{-1, 1}, {4, 5}, {5, 6}, true});
  CHECK_THROWS_WITH(calls.store(bad),
                    "store_kv: row 1 is not the one behind the row before, must be in a chunk");
  CHECK_THROWS_AS(calls.attend(bad), OpError);
}

}  // namespace gemmad
