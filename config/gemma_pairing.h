// Whether a Gemma is the one that an LTX-2 checkpoint was trained with.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/processor_config.h"

namespace gemmad {

/// LTX-2's own rule. A checkpoint that names a Gemma version needs just that one. One that names none needs,
/// from version 2.4.0 on, a Gemma without a version too, which may still be the wrong one: a warning, in a
/// sentence, is returned. Before that, or without a version of its own, it needs a Gemma 3. `model_type` and
/// `gemma_version` are those of the Gemma's config. Throws ConfigError that begins with `source_name`, the
/// checkpoint, and says what to do.
std::optional<std::string> check_pairing(const GemmaPairing& pairing, std::string_view model_type,
                                         const std::optional<std::string>& gemma_version,
                                         const std::string& source_name);

}  // namespace gemmad
