// Bytes in a text.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace gemmad {

/// RFC 4648's base64, strictly: its alphabet alone, padded to whole groups of 4, no spaces, no bits set that
/// are not used. Throws ImageError where it is not, with the place, and where it holds more than `max_bytes`.
std::vector<std::byte> decode_base64(std::string_view text, std::size_t max_bytes);

}  // namespace gemmad
