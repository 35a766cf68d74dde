// Checks of the small parts of a tokenizer.json: each is of the one form that is implemented, or refused by
// name. Internal to this folder.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "daemon/tokenizer/added_tokens.h"

namespace gemmad {

/// One element of "added_tokens". `place` names it in errors.
AddedToken read_added_token(const nlohmann::json& token, const std::string& source_name,
                            const std::string& place);

/// Refuses model settings other than those of a byte-fallback BPE without dropout, prefix or suffix.
void check_model_settings(const nlohmann::json& model, const std::string& source_name);

/// Checks "normalizer" and "pre_tokenizer" of `root`. True when spaces become U+2581.
bool read_normalizer(const nlohmann::json& root, const std::string& source_name);

/// What "post_processor" of `root` puts in front of a text: nothing (then `name` is empty), or one token.
struct LeadingToken {
  std::string name;
  std::int64_t id = -1;
};
LeadingToken read_post_processor(const nlohmann::json& root, const std::string& source_name);

}  // namespace gemmad
