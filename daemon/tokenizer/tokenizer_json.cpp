#include "daemon/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <utility>

#include "daemon/tokenizer/small_tree.h"
#include "daemon/tokenizer/tokenizer_error.h"
#include "daemon/tokenizer/tokenizer_parts.h"

namespace gemmad {
namespace {

using nlohmann::json;

/// Takes the events of the parser. The member functions with nlohmann's names are its interface; false ends
/// parsing.
class Handler {
 public:
  Handler(TokenizerJson& out, const std::string& source_name) : out_(out), source_name_(source_name) {}

  bool null() { return scalar(nullptr); }
  bool boolean(bool value) { return scalar(value); }
  bool number_integer(json::number_integer_t value) { return scalar(value); }
  bool number_float(json::number_float_t value, const std::string&) { return scalar(value); }
  bool binary(json::binary_t&) { return false; }
  bool number_unsigned(json::number_unsigned_t value) {
    return in(Place::kVocab) ? add_piece(value) : scalar(value);
  }
  bool string(std::string& value) {
    if (in(Place::kMerge)) return add_merge_side(value);
    if (in(Place::kMerges)) return add_merge(value);
    return scalar(std::move(value));
  }
  bool start_object(std::size_t) { return start(json::object()); }
  bool start_array(std::size_t) { return start(json::array()); }
  bool key(std::string& name);
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool parse_error(std::size_t position, const std::string&, const json::exception&) {
    error_position_ = position;
    return false;
  }

  std::size_t error_position() const { return error_position_; }
  bool saw_vocab() const { return saw_vocab_; }
  bool saw_merges() const { return saw_merges_; }

 private:
  /// Which part of the file the parser is in; small parts are in tree_ instead.
  enum class Place { kRoot, kModel, kVocab, kMerges, kMerge, kAddedTokens };
  static constexpr std::size_t kMaxDepth = 16;
  static constexpr std::size_t kMaxValuesInPart = 10'000;

  bool in(Place place) const { return tree_.depth() == 0 && !places_.empty() && places_.back() == place; }
  bool enter(Place place) {
    places_.push_back(place);
    return true;
  }
  std::string place() const;
  [[noreturn]] void fail(const std::string& reason) const { refuse(source_name_, place(), reason); }

  bool scalar(json value);
  bool start(json empty_container);
  bool end();
  bool store(json value);
  bool add_piece(json::number_unsigned_t id);
  bool add_merge(std::string_view both);
  bool add_merge_side(std::string_view side);

  TokenizerJson& out_;
  const std::string& source_name_;
  std::vector<Place> places_;
  SmallTree tree_;
  std::string root_key_;
  std::string key_;  // of the model or of the vocabulary
  int sides_ = 0;    // of the merge being read
  bool saw_vocab_ = false;
  bool saw_merges_ = false;
  bool saw_added_tokens_ = false;
  std::size_t error_position_ = 0;
};

std::string Handler::place() const {
  if (places_.empty()) return "the file";
  switch (places_.back()) {
    case Place::kRoot:
      return root_key_.empty() ? "the file" : root_key_;
    case Place::kModel:
      return key_.empty() ? "model" : "model." + key_;
    case Place::kVocab:
      return "model.vocab";
    case Place::kMerges:
    case Place::kMerge:
      return "model.merges[" + std::to_string(out_.merges.size()) + "]";
    case Place::kAddedTokens:
      return "added_tokens[" + std::to_string(out_.added_tokens.size()) + "]";
  }
  return "the file";
}

bool Handler::key(std::string& name) {
  if (tree_.depth() > 0) {
    if (!tree_.key(name)) fail("repeats the key " + quote(name));
    return true;
  }
  if (in(Place::kRoot)) {
    static constexpr std::string_view kKnown[] = {"version",       "truncation",     "padding",
                                                  "added_tokens",  "normalizer",     "model",
                                                  "pre_tokenizer", "post_processor", "decoder"};
    root_key_.clear();
    if (std::find(std::begin(kKnown), std::end(kKnown), name) == std::end(kKnown)) {
      fail("has the key " + quote(name) + ", which is not implemented");
    }
    const bool repeated = out_.root.contains(name) || (name == "model" && !out_.model.is_null()) ||
                          (name == "added_tokens" && saw_added_tokens_);
    if (repeated) fail("repeats the key " + quote(name));
    root_key_ = name;
  } else {
    if (in(Place::kModel)) {
      const bool repeated =
          out_.model.contains(name) || (name == "vocab" && saw_vocab_) || (name == "merges" && saw_merges_);
      key_.clear();
      if (repeated) fail("repeats the key " + quote(name));
    }
    key_.assign(name);
  }
  return true;
}

bool Handler::start(json empty_container) {
  if (places_.size() + tree_.depth() >= kMaxDepth) fail("nests deeper than " + std::to_string(kMaxDepth));
  const bool is_object = empty_container.is_object();
  if (tree_.depth() == 0) {
    if (places_.empty()) {
      if (!is_object) fail("is an array, not an object");
      out_.root = json::object();
      return enter(Place::kRoot);
    }
    const bool in_root = in(Place::kRoot);
    const bool in_model = in(Place::kModel);
    if (in_root && root_key_ == "model") {
      if (!is_object) fail("is an array, not an object");
      out_.model = json::object();
      return enter(Place::kModel);
    }
    if (in_root && root_key_ == "added_tokens") {
      if (is_object) fail("is an object, not an array");
      saw_added_tokens_ = true;
      return enter(Place::kAddedTokens);
    }
    if (in_model && key_ == "vocab") {
      if (!is_object)
        fail("is an array, not an object of pieces and ids; only \"BPE\" vocabularies are implemented");
      saw_vocab_ = true;
      return enter(Place::kVocab);
    }
    if (in_model && key_ == "merges") {
      if (is_object) fail("is an object, not an array");
      saw_merges_ = true;
      return enter(Place::kMerges);
    }
    if (in(Place::kMerges) && !is_object) {
      sides_ = 0;
      return enter(Place::kMerge);
    }
    if (in(Place::kVocab)) fail("gives " + quote(key_) + " something that is no id");
    if (in(Place::kMerges) || in(Place::kMerge)) fail("is neither \"a b\" nor [\"a\", \"b\"]");
  }
  tree_.start(std::move(empty_container));
  return true;
}

bool Handler::end() {
  if (tree_.depth() > 0) {
    tree_.end();
    if (tree_.num_values() > kMaxValuesInPart) {
      fail("holds more than " + std::to_string(kMaxValuesInPart) + " values");
    }
    return tree_.depth() > 0 || store(tree_.take());
  }
  if (in(Place::kMerge) && sides_ != 2) fail("has " + std::to_string(sides_) + " sides, not two");
  if (in(Place::kMerge)) {
    places_.pop_back();
    out_.merges.end_merge();
    return true;
  }
  places_.pop_back();
  return true;
}

bool Handler::scalar(json value) {
  if (tree_.depth() > 0) {
    tree_.put(std::move(value));
    if (tree_.num_values() > kMaxValuesInPart) {
      fail("holds more than " + std::to_string(kMaxValuesInPart) + " values");
    }
    return true;
  }
  if (places_.empty()) fail("is a single value, not an object");
  if (in(Place::kVocab)) fail("gives " + quote(key_) + " something that is no id");
  if (in(Place::kMerges) || in(Place::kMerge)) fail("is neither \"a b\" nor [\"a\", \"b\"]");
  return store(std::move(value));
}

bool Handler::store(json value) {
  if (in(Place::kAddedTokens)) {
    out_.added_tokens.push_back(read_added_token(value, source_name_, place()));
    return true;
  }
  if (in(Place::kModel)) {
    if (key_ == "vocab" || key_ == "merges") fail("is a single value");
    out_.model[key_] = std::move(value);
    return true;
  }
  if (root_key_ == "model") fail("is not an object; this is no tokenizer.json");
  if (root_key_ == "added_tokens" && !value.is_null()) fail("is not an array");
  out_.root[root_key_] = std::move(value);
  return true;
}

bool Handler::add_piece(json::number_unsigned_t id) {
  if (key_.empty()) fail("has an empty piece");
  if (id > static_cast<json::number_unsigned_t>(Vocabulary::kMaxId)) {
    fail("gives " + quote(key_) + " the id " + std::to_string(id) + ", above the limit of " +
         std::to_string(Vocabulary::kMaxId));
  }
  const auto small_id = static_cast<std::int32_t>(id);
  switch (out_.vocabulary.add(key_, small_id)) {
    case Vocabulary::Added::kDone:
      return true;
    case Vocabulary::Added::kPieceTaken:
      fail("repeats the piece " + quote(key_));
    case Vocabulary::Added::kIdTaken:
      fail("gives the id " + std::to_string(id) + " to both " + quote(out_.vocabulary.piece(small_id)) +
           " and " + quote(key_));
  }
  return false;
}

bool Handler::add_merge(std::string_view both) {
  const std::size_t space = both.find(' ');
  if (space == std::string_view::npos || both.find(' ', space + 1) != std::string_view::npos) {
    fail("is " + quote(both) + "; it must hold one space, between its sides");
  }
  sides_ = 0;
  add_merge_side(both.substr(0, space));
  add_merge_side(both.substr(space + 1));
  out_.merges.end_merge();
  return true;
}

bool Handler::add_merge_side(std::string_view side) {
  if (side.empty()) fail("has an empty side");
  if (sides_ == 2) fail("has more than two sides");
  out_.merges.add_side(side);
  ++sides_;
  return true;
}

}  // namespace

TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& source_name) {
  TokenizerJson out;
  Handler handler(out, source_name);
  if (!json::sax_parse(text.data(), text.data() + text.size(), &handler)) {
    if (handler.error_position() > text.size()) {
      throw TokenizerError(source_name + ": ends after " + std::to_string(text.size()) +
                           " bytes in the middle of its JSON; it is truncated, fetch the file again");
    }
    throw TokenizerError(source_name + ": is not valid JSON at byte " +
                         std::to_string(handler.error_position()) + " of " + std::to_string(text.size()));
  }
  if (!out.model.is_null() && !(handler.saw_vocab() && handler.saw_merges())) {
    refuse(source_name, "model", handler.saw_vocab() ? "lacks \"merges\"" : "lacks \"vocab\"");
  }
  return out;
}

}  // namespace gemmad
