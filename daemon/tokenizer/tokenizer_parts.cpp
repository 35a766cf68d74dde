#include "daemon/tokenizer/tokenizer_parts.h"

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

#include "daemon/tokenizer/tokenizer_error.h"
#include "daemon/tokenizer/vocabulary.h"

namespace gemmad {
namespace {

using nlohmann::json;

/// `value` for a message: JSON text, cut.
std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 120) text = text.substr(0, 120) + "...";
  return text;
}

/// The value of `key`, or null when `object` is no object or lacks it.
const json& get(const json& object, const char* key) {
  static const json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

bool is_string(const json& value, std::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

/// null, or a value that says the same as null would.
bool is_absent(const json& value) {
  return value.is_null() || is_string(value, "");
}

void check_keys(const json& object, std::initializer_list<std::string_view> known,
                const std::string& source_name, const std::string& place) {
  for (const auto& item : object.items()) {
    bool found = false;
    for (const std::string_view key : known)
      found = found || key == item.key();
    if (!found) refuse(source_name, place + quote(item.key()), "is a key that is not implemented");
  }
}

}  // namespace

AddedToken read_added_token(const json& token, const std::string& source_name, const std::string& place) {
  if (!token.is_object()) refuse(source_name, place, "is " + shown(token) + ", not an object");
  check_keys(token, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"},
             source_name, place + ".");

  AddedToken out;
  const json& content = get(token, "content");
  if (!content.is_string())
    refuse(source_name, place + ".content", "is " + shown(content) + ", not a string");
  out.content = content.get<std::string>();
  if (out.content.empty() || out.content.size() > AddedTokenMatcher::kMaxBytes) {
    refuse(source_name, place + ".content",
           "is " + std::to_string(out.content.size()) + " bytes long; allowed are 1 to " +
               std::to_string(AddedTokenMatcher::kMaxBytes));
  }
  const json& id = get(token, "id");
  if (!id.is_number_unsigned() || id.get<std::uint64_t>() > Vocabulary::kMaxId) {
    refuse(source_name, place + ".id",
           "of " + quote(out.content) + " is " + shown(id) + "; allowed are integers from 0 to " +
               std::to_string(Vocabulary::kMaxId));
  }
  out.id = id.get<std::int32_t>();
  for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) {
    const json& value = get(token, flag);
    if (value.is_null() || value == false) continue;
    refuse(source_name, place + "." + flag,
           "of " + quote(out.content) + " is " + shown(value) + "; only false is implemented");
  }
  const json& special = get(token, "special");
  if (!special.is_null() && !special.is_boolean()) {
    refuse(source_name, place + ".special", "is " + shown(special) + ", not true or false");
  }
  out.special = special == true;
  return out;
}

void check_model_settings(const json& model, const std::string& source_name) {
  if (!model.is_object()) refuse(source_name, "model", "is missing; this is no tokenizer.json");
  const auto require = [&](const char* key, bool holds, const char* implemented) {
    if (holds) return;
    refuse(source_name, std::string("model.") + key,
           "is " + shown(get(model, key)) + "; only " + implemented + " is implemented");
  };
  require("type", is_string(get(model, "type"), "BPE"), "\"BPE\"");
  require("byte_fallback", get(model, "byte_fallback") == true, "true");
  const json& dropout = get(model, "dropout");
  require("dropout", dropout.is_null() || dropout == 0.0, "null");
  require("continuing_subword_prefix", is_absent(get(model, "continuing_subword_prefix")), "null");
  require("end_of_word_suffix", is_absent(get(model, "end_of_word_suffix")), "null");
  const json& ignore_merges = get(model, "ignore_merges");
  require("ignore_merges", ignore_merges.is_null() || ignore_merges == false, "false");
  // unk_token and fuse_unk mean nothing here: with all 256 byte pieces, nothing is unknown.
  check_keys(model,
             {"type", "byte_fallback", "dropout", "continuing_subword_prefix", "end_of_word_suffix",
              "ignore_merges", "unk_token", "fuse_unk"},
             source_name, "model.");
}

bool read_normalizer(const json& root, const std::string& source_name) {
  // Written with escapes so that nobody takes the letter for an underscore.
  static constexpr std::string_view kMetaSpaceUtf8 = "\xE2\x96\x81";
  const json& normalizer = get(root, "normalizer");
  const bool replaces = !normalizer.is_null();
  if (replaces && !(is_string(get(normalizer, "type"), "Replace") &&
                    is_string(get(normalizer, "content"), kMetaSpaceUtf8) &&
                    get(normalizer, "pattern") == json{{"String", " "}})) {
    refuse(source_name, "normalizer",
           "is " + shown(normalizer) + "; only null and the replacement of \" \" by U+2581 are implemented");
  }
  // A split at spaces does nothing where no spaces are left.
  const json& splitter = get(root, "pre_tokenizer");
  const bool splits_at_spaces = is_string(get(splitter, "type"), "Split") &&
                                get(splitter, "pattern") == json{{"String", " "}} &&
                                get(splitter, "invert") == false;
  if (!splitter.is_null() && !(replaces && splits_at_spaces)) {
    refuse(source_name, "pre_tokenizer",
           "is " + shown(splitter) + "; only null is implemented, and with a normalizer the split at \" \"");
  }
  return replaces;
}

LeadingToken read_post_processor(const json& root, const std::string& source_name) {
  const json& processor = get(root, "post_processor");
  if (processor.is_null()) return {};
  const auto not_implemented = [&]() {
    refuse(source_name, "post_processor",
           "is " + shown(processor) + "; only null and a template of one token and $A are implemented");
  };
  if (!is_string(get(processor, "type"), "TemplateProcessing")) not_implemented();
  const json& single = get(processor, "single");
  if (!single.is_array() || single.empty() || single.size() > 2) not_implemented();
  if (!is_string(get(get(single.back(), "Sequence"), "id"), "A")) not_implemented();
  if (single.size() == 1) return {};

  LeadingToken token;
  const json& name = get(get(single.front(), "SpecialToken"), "id");
  if (!name.is_string()) not_implemented();
  token.name = name.get<std::string>();
  const json& ids = get(get(get(processor, "special_tokens"), token.name.c_str()), "ids");
  if (!ids.is_array() || ids.size() != 1 || !ids.front().is_number_unsigned() ||
      ids.front().get<std::uint64_t>() > Vocabulary::kMaxId) {
    refuse(source_name, "post_processor.special_tokens",
           "gives " + quote(token.name) + " the ids " + shown(ids) + "; it must give one id from 0 to " +
               std::to_string(Vocabulary::kMaxId));
  }
  token.id = ids.front().get<std::int64_t>();
  return token;
}

}  // namespace gemmad
