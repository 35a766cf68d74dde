#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"

namespace gemmad {

TEST_CASE("copy copies every element of a tensor and nothing around it") {
  OpTesting testing(3);
  const std::int64_t count = GENERATE(0, 1, 7, 4096, 100001);
  CAPTURE(count);
  const std::vector<float> values = testing.rounded(random_values(count, 1));
  const DeviceTensor src = testing.put(values, {count});
  const DeviceTensor whole =
      testing.put(std::vector<float>(static_cast<std::size_t>(count + 16), 7.0f), {count + 16});
  const auto margin = 8 * static_cast<std::int64_t>(size_bytes(whole.view.dtype));
  testing.ops().copy({whole.view.as<std::byte>() + margin, whole.view.dtype, {count}}, src.view,
                     testing.stream());
  std::vector<float> expected(8, 7.0f);
  expected.insert(expected.end(), values.begin(), values.end());
  expected.insert(expected.end(), 8, 7.0f);
  CHECK((testing.get(whole.view) == expected));
  CHECK((testing.get(src.view) == values));
}

TEST_CASE("copy takes integers and fp32 too, of any shape") {
  OpTesting testing;
  const DeviceTensor integers = testing.put(std::vector<std::int32_t>{-1, 0, 1 << 30});
  const DeviceTensor to = testing.put(std::vector<std::int32_t>{5, 5, 5});
  testing.ops().copy(to.view, integers.view, testing.stream());
  std::vector<std::int32_t> actual(3);
  testing.ops().copy_to_host({actual.data(), DType::kI32, {3}}, to.view, testing.stream());
  testing.ops().synchronize(testing.stream());
  CHECK(actual == std::vector<std::int32_t>{-1, 0, 1 << 30});

  const std::vector<float> values = random_values(24, 2);
  const DeviceTensor from = testing.put(values, {2, 3, 4}, DType::kF32);
  const DeviceTensor out = testing.empty({2, 3, 4}, DType::kF32);
  testing.ops().copy(out.view, from.view, testing.stream());
  CHECK(testing.get(out.view) == values);
}

}  // namespace gemmad
