// Files of prompts and texts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gemmad {

/// The prompts of a file: a list of strings or of {"input_ids": [...]}, or one such object alone, whose
/// input_ids may also be a list of lists. The result is what an encode request takes. Throws CtlUsageError
/// naming file and reason.
nlohmann::json read_prompts_file(const std::string& file);

/// The texts of a file that has a JSON string, or an object with "text", a line. Empty lines are skipped.
/// Throws as above.
std::vector<std::string> read_texts_file(const std::string& file);

}  // namespace gemmad
