// JSON without leniency: what a person or a program wrote by mistake is an error, never a silent choice.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace gemmad {

/// Deepest nesting of arrays and objects that parse_strict_json accepts.
inline constexpr std::size_t kMaxJsonDepth = 64;
/// Most bytes of a configuration file, the daemon's or a model's.
inline constexpr std::size_t kMaxConfigBytes = 1024 * 1024;

/// Parses one JSON text (RFC 8259). Pure; memory is bounded by a multiple of `max_bytes`, stack use is
/// constant. Throws ConfigError naming `source_name` and the key or the place for: more than `max_bytes`, an
/// empty text, bad syntax, comments, a byte order mark, trailing bytes (a NUL included), invalid UTF-8, lone
/// surrogates, numbers beyond a double, a key repeated in one object, nesting deeper than kMaxJsonDepth.
nlohmann::json parse_strict_json(std::string_view text, const std::string& source_name,
                                 std::size_t max_bytes);

/// The bytes of a whole file. Blocks on the disk. Throws ConfigError naming the file when it cannot be read
/// or holds more than `max_bytes`; never reads more than `max_bytes` + 1.
std::string read_text_file(const std::filesystem::path& file, std::size_t max_bytes);

}  // namespace gemmad
