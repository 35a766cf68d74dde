// Cosines and sines of rotary position embeddings, made on the host.
#pragma once

#include <cstdint>
#include <vector>

namespace gemmad {

/// inv[i] = 1 / theta^(2i/S) / factor, i = 0 .. S/2-1, in fp32 with a rounding after each step: exponent,
/// power (correctly rounded), reciprocal, division. Not a formula rounded once at the end: one ulp of inv
/// moves angles near 1000 visibly. Throws std::invalid_argument for an odd or non-positive head_dim, or a
/// theta or factor that is not positive.
std::vector<float> rope_inverse_frequencies(double theta, double factor, std::int64_t head_dim);

/// [num_positions, S], row p = cos(p * inv[i]) for i < S/2, then sin(p * inv[i]). The angle is one fp32
/// product; cosine and sine are of that angle, rounded to fp32. Throws as above, and for negative
/// num_positions.
std::vector<float> make_rope_table(double theta, double factor, std::int64_t head_dim,
                                   std::int64_t num_positions);

}  // namespace gemmad
