#include <cstring>

#include "kernels/base/float_formats.h"
#include "tests/kernels/op_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

namespace gemmad {
namespace {

constexpr std::int64_t kVocabulary = 53;
constexpr float kScale = 25.298221f;

}  // namespace

TEST_CASE("embed gathers and scales rows of every float type with one rounding, aligned or not") {
  const std::int64_t width = GENERATE(1, 7, 32, 641);
  const DType dtype = GENERATE(DType::kBF16, DType::kF16, DType::kF32);
  const std::size_t shift_bytes = GENERATE(0, 1);  // files give no alignment
  CAPTURE(width, name(dtype), shift_bytes);
  OpTesting testing;

  // Values that all three types hold exactly.
  std::vector<float> values(static_cast<std::size_t>(kVocabulary * width));
  std::vector<std::byte> table(values.size() * size_bytes(dtype) + shift_bytes);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = (static_cast<float>(i * 7 % 255) - 127.0f) / 64.0f;
    std::byte* to = table.data() + shift_bytes + i * size_bytes(dtype);
    const std::uint16_t bf16 = f32_to_bf16(values[i]);
    if (dtype == DType::kF32) std::memcpy(to, &values[i], 4);
    if (dtype == DType::kBF16) std::memcpy(to, &bf16, 2);
    if (dtype == DType::kF16) {
      std::uint16_t f16 = 0;
      while (f16_to_f32(f16) != values[i])
        ++f16;
      std::memcpy(to, &f16, 2);
    }
  }
  const Ops::Table made =
      testing.ops().make_table({table.data() + shift_bytes, dtype, {kVocabulary, width}}, nullptr);
  const std::vector<std::int32_t> ids = {0, kVocabulary - 1, 17, 17, 1};
  const auto num_ids = static_cast<std::int64_t>(ids.size());
  const DeviceTensor out = testing.empty({num_ids, width});
  testing.ops().embed(testing.put(ids).view, made.view, kScale, out.view, testing.stream());

  std::vector<float> expected;
  const float scale = testing.rounded({kScale}).front();
  for (std::int32_t id : ids) {
    for (std::int64_t i = 0; i < width; ++i)
      expected.push_back(values[static_cast<std::size_t>(id * width + i)] * scale);
  }
  expected = testing.rounded(expected);
  const std::vector<float> actual = testing.get(out.view);
  const Comparison result = compare_bits({actual.data(), DType::kF32, {num_ids, width}},
                                         {expected.data(), DType::kF32, {num_ids, width}});
  INFO(result.report);
  CHECK(result.ok);
}

}  // namespace gemmad
