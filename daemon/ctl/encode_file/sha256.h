// SHA-256, as FIPS 180-4 has it.
#pragma once

#include <string>
#include <string_view>

namespace gemmad {

/// Of `bytes`, as 64 hexadecimal digits. Pure.
std::string sha256_hex(std::string_view bytes);

}  // namespace gemmad
