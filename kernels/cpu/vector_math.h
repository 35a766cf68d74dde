// Elementary functions in forms that compilers turn into vector code.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cpu/multiversion.h"

namespace gemmad::cpu {

/// e^x within 1 ulp for x in [-87, 88]; outside, the value at the nearer end. No branches.
/// x = n ln 2 + r, |r| <= ln 2 / 2; e^r is 1 + r + r^2 p(r), p fitted for the least relative error (3e-9)
/// there.
GEMMAD_INLINE float exp_clamped(float x) {
  constexpr float kRound = 0x1.8p23f;  // adding and taking it away rounds to an integer
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;  // few bits: n times it is exact
  constexpr float kLn2Low = -2.12194440e-4f;
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float n = (x * kLog2E + kRound) - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 0.0013814539f;
  p = p * r + 0.008368745f;
  p = p * r + 0.04166839f;
  p = p * r + 0.16666521f;
  p = p * r + 0.49999994f;
  const float power = p * (r * r) + r + 1.0f;
  return power * std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
}

/// gelu_tanh(g) = g / (1 + exp(-2 sqrt(2/pi) (g + 0.044715 g^3))): no cancellation for negative g, unlike 1 +
/// tanh.
GEMMAD_INLINE float gelu_tanh(float g) {
  constexpr float kTwoSqrt2OverPi = 1.5957691216f;
  return g / (1.0f + exp_clamped(-kTwoSqrt2OverPi * (g + 0.044715f * (g * g * g))));
}

}  // namespace gemmad::cpu
