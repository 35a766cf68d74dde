#include "config/quick_json.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "config/strict_json.h"

namespace gemmad {

namespace {

using nlohmann::json;

/// Every function but peek and take returns false for what is out of the ordinary, and is of no use then.
class QuickReader {
 public:
  explicit QuickReader(std::string_view text) : next_(text.data()), end_(next_ + text.size()) {}

  bool document(json& out) { return value(out) && peek() == '\0' && next_ == end_; }

 private:
  // Any whole number of so many digits fits 64 bits.
  static constexpr std::ptrdiff_t kMaxDigits = 18;

  /// The next byte that is no white space; 0 at the end.
  char peek() {
    while (next_ != end_ && (*next_ == ' ' || *next_ == '\t' || *next_ == '\r' || *next_ == '\n'))
      ++next_;
    return next_ == end_ ? '\0' : *next_;
  }

  bool take(char wanted) {
    if (peek() != wanted) return false;
    ++next_;
    return true;
  }

  bool value(json& out) {
    switch (peek()) {
      case '{':
        return object(out);
      case '[':
        return array(out);
      case '"':
        return string(out);
      case 't':
        return literal("true", true, out);
      case 'f':
        return literal("false", false, out);
      case 'n':
        return literal("null", nullptr, out);
      default:
        return number(out);
    }
  }

  bool object(json& out) {
    out = json::object();
    auto& members = out.get_ref<json::object_t&>();
    ++next_;
    if (++depth_ > kMaxJsonDepth) return false;
    if (!take('}')) {
      do {
        std::string key;
        if (peek() != '"' || !text(key) || !take(':')) return false;
        const auto [member, is_new] = members.emplace(std::move(key), nullptr);
        if (!is_new || !value(member->second)) return false;
      } while (take(','));
      if (!take('}')) return false;
    }
    --depth_;
    return true;
  }

  bool array(json& out) {
    out = json::array();
    auto& items = out.get_ref<json::array_t&>();
    ++next_;
    if (++depth_ > kMaxJsonDepth) return false;
    if (!take(']')) {
      do {
        if (!value(items.emplace_back())) return false;
      } while (take(','));
      if (!take(']')) return false;
    }
    --depth_;
    return true;
  }

  bool string(json& out) {
    std::string content;
    if (!text(content)) return false;
    out = std::move(content);
    return true;
  }

  bool text(std::string& out) {
    const char* const begin = ++next_;
    while (next_ != end_ && *next_ != '"') {
      // Also bytes beyond ASCII, where char is signed.
      if (*next_ < 0x20 || *next_ > 0x7e || *next_ == '\\') return false;
      ++next_;
    }
    if (next_ == end_) return false;
    out.assign(begin, next_++);
    return true;
  }

  template <typename Value>
  bool literal(std::string_view word, Value means, json& out) {
    if (!std::string_view(next_, end_).starts_with(word)) return false;
    next_ += word.size();
    out = means;
    return true;
  }

  bool number(json& out) {
    const bool is_negative = next_ != end_ && *next_ == '-';
    if (is_negative) ++next_;
    const char* const begin = next_;
    std::uint64_t magnitude = 0;
    for (; next_ != end_ && *next_ >= '0' && *next_ <= '9' && next_ - begin <= kMaxDigits; ++next_)
      magnitude = 10 * magnitude + static_cast<std::uint64_t>(*next_ - '0');
    const std::ptrdiff_t digits = next_ - begin;
    if (digits == 0 || digits > kMaxDigits || (*begin == '0' && (digits > 1 || is_negative))) return false;
    if (is_negative) {
      out = -static_cast<std::int64_t>(magnitude);
    } else {
      out = magnitude;
    }
    return true;
  }

  const char* next_;
  const char* end_;
  std::size_t depth_ = 0;
};

}  // namespace

std::optional<json> quick_json(std::string_view text) {
  json root;
  if (!QuickReader(text).document(root)) return std::nullopt;
  return root;
}

}  // namespace gemmad
