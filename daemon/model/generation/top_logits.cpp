#include "daemon/model/generation/top_logits.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>

#include "kernels/base/float_formats.h"
#include "kernels/cpu/multiversion.h"

namespace gemmad {
namespace {

/// A key is an integer that is ordered as the number whose bits it is made of. Every number that is not
/// finite has the smallest key, which no finite one has.
struct F32Format {
  using Bits = std::int32_t;
  static constexpr Bits kMagnitude = 0x7fffffff;
  static constexpr Bits kInfinity = 0x7f800000;
  static Bits bits(const std::byte* row, std::int64_t i) { return std::bit_cast<Bits>(load_f32(row, i)); }
  static float value(Bits bits) { return std::bit_cast<float>(bits); }
};
struct Bf16Format {
  using Bits = std::int16_t;
  static constexpr Bits kMagnitude = 0x7fff;
  static constexpr Bits kInfinity = 0x7f80;
  static Bits bits(const std::byte* row, std::int64_t i) { return std::bit_cast<Bits>(load_u16(row, i)); }
  static float value(Bits bits) { return bf16_to_f32(static_cast<std::uint16_t>(bits)); }
};

template <typename Format>
constexpr auto kNotFinite = std::numeric_limits<typename Format::Bits>::min();

// Without a branch or a choice, which the compiler would not turn into vector instructions.
template <typename Format>
GEMMAD_INLINE constexpr typename Format::Bits key_of(typename Format::Bits bits) {
  using Bits = typename Format::Bits;
  const auto magnitude = static_cast<Bits>(bits & Format::kMagnitude);
  const auto sign = static_cast<Bits>(bits >> std::numeric_limits<Bits>::digits);  // 0 or -1
  const auto key = static_cast<Bits>((magnitude ^ sign) - sign);
  const auto is_finite = static_cast<Bits>(-(magnitude < Format::kInfinity));  // 0 or -1
  return static_cast<Bits>((key & is_finite) | (kNotFinite<Format> & ~is_finite));
}

// So many values share a maximum: few enough that a block with a large one is soon searched, so many that
// there are few maxima.
constexpr std::int64_t kBlock = 256;

template <typename Format>
GEMMAD_INLINE void find_maxima(const std::byte* row, std::int64_t size, std::int32_t* maxima) {
  for (std::int64_t begin = 0; begin < size; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, size);
    auto largest = kNotFinite<Format>;
    for (std::int64_t i = begin; i < end; ++i) {
      const auto key = key_of<Format>(Format::bits(row, i));
      largest = key > largest ? key : largest;
    }
    *maxima++ = largest;
  }
}

GEMMAD_MULTIVERSION void find_maxima_of_f32(const std::byte* row, std::int64_t size, std::int32_t* maxima) {
  find_maxima<F32Format>(row, size, maxima);
}
GEMMAD_MULTIVERSION void find_maxima_of_bf16(const std::byte* row, std::int64_t size, std::int32_t* maxima) {
  find_maxima<Bf16Format>(row, size, maxima);
}

}  // namespace

void keep_largest(std::vector<Logit>& logits, std::size_t k) {
  if (logits.size() <= k) return;
  const auto kth = logits.begin() + static_cast<std::ptrdiff_t>(k) - 1;
  std::nth_element(logits.begin(), kth, logits.end(), is_before);
  const float least = kth->value;
  std::erase_if(logits, [least](const Logit& logit) { return logit.value < least; });
}

template <typename Format>
void TopLogits::collect(const ConstTensorView& logits, std::size_t k, std::vector<Logit>& found) {
  // The k blocks with the largest maxima hold k values that are not below the least of these maxima.
  std::int32_t bound = kNotFinite<Format>;
  if (k > 0 && k <= maxima_.size()) {
    sorted_ = maxima_;
    const auto kth = sorted_.begin() + static_cast<std::ptrdiff_t>(k) - 1;
    std::nth_element(sorted_.begin(), kth, sorted_.end(), std::greater<>());
    bound = *kth;
  }
  bound = std::max(bound, std::int32_t{kNotFinite<Format>} + 1);

  const auto* row = logits.as<std::byte>();
  std::int64_t begin = 0;
  for (const std::int32_t largest : maxima_) {
    const std::int64_t end = std::min(begin + kBlock, logits.shape[0]);
    for (std::int64_t i = largest < bound ? end : begin; i < end; ++i) {
      const auto bits = Format::bits(row, i);
      if (key_of<Format>(bits) >= bound) found.push_back({Format::value(bits), static_cast<std::int32_t>(i)});
    }
    begin = end;
  }
}

void TopLogits::find(ConstTensorView logits, std::size_t k, std::vector<Logit>& found) {
  found.clear();
  const bool has_type = logits.dtype == DType::kF32 || logits.dtype == DType::kBF16;
  if (!has_type || logits.shape.rank() != 1 || logits.shape[0] > std::numeric_limits<std::int32_t>::max()) {
    throw std::invalid_argument("logits are " + std::string(name(logits.dtype)) + " " + logits.shape.text() +
                                ", must be F32 or BF16 and one row of at most 2^31 - 1");
  }
  const std::int64_t size = logits.shape[0];
  maxima_.resize(static_cast<std::size_t>((size + kBlock - 1) / kBlock));
  if (logits.dtype == DType::kF32) {
    find_maxima_of_f32(logits.as<std::byte>(), size, maxima_.data());
    collect<F32Format>(logits, k, found);
  } else {
    find_maxima_of_bf16(logits.as<std::byte>(), size, maxima_.data());
    collect<Bf16Format>(logits, k, found);
  }
  if (k > 0) keep_largest(found, k);
}

}  // namespace gemmad
