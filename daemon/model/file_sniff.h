// Recognises what downloads leave behind in place of a file.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace gemmad {

/// Says in a clause why `bytes`, a whole file, cannot be a model's file: empty, a git-LFS pointer, an HTML
/// page. Nothing for all else. Looks at the first bytes only.
std::optional<std::string> foreign_content(std::span<const std::byte> bytes);

}  // namespace gemmad
