// Rotary positions of LTX-2's connectors, made on the host.
#pragma once

#include <cstdint>
#include <vector>

namespace gemmad {

/// The C/2 frequencies of a connector C wide, geometric from pi/2 to 5000 pi: 10000^(i / (C/2 - 1)) pi / 2.
/// With `has_double_grid` computed in fp64 and rounded once, else in fp32 with a rounding after each step, as
/// LTX-2 does: at a max_pos of 1 one ulp of them turns the fastest by radians. Throws std::invalid_argument
/// for a width that is odd or below 4.
std::vector<float> connector_frequencies(std::int64_t width, bool has_double_grid);

/// [S, C] of a sequence of S rows, row p = C/2 cosines, then C/2 sines, of frequency * (2 p / max_pos - 1).
/// The angle is one fp32 product; cosine and sine are of that angle, rounded to fp32. Throws as above, and
/// for a length or max_pos that is not positive.
std::vector<float> make_connector_rope(std::int64_t width, bool has_double_grid, std::int64_t max_pos,
                                       std::int64_t sequence_length);

}  // namespace gemmad
