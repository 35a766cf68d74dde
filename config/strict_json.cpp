#include "config/strict_json.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "config/config_error.h"
#include "config/quick_json.h"

namespace gemmad {

namespace {

using nlohmann::json;

ConfigError syntax_error(std::string_view text, const std::string& source_name, std::size_t bytes_read,
                         const std::string& reason) {
  const std::size_t offset = std::min(bytes_read == 0 ? 0 : bytes_read - 1, text.size());
  const std::string_view before = text.substr(0, offset);
  const auto line = static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = newline == std::string_view::npos ? offset + 1 : offset - newline;
  return ConfigError::at_position(source_name, line, column, printable(reason, 240));
}

/// Builds the document from parser events. The library's own builder keeps the last of repeated keys and
/// nests without a limit, hence this one.
class StrictBuilder {
 public:
  StrictBuilder(std::string_view text, const std::string& source_name)
      : text_(text), source_name_(source_name) {}

  json take() { return std::move(root_); }

  // The events, under the names that json::sax_parse calls.
  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(json::object()); }
  bool start_array(std::size_t) { return open(json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    Container& object = open_.back();
    object.key = std::move(name);
    if (object.value->contains(object.key)) throw ConfigError::at_key(source_name_, path(), "is repeated");
    return true;
  }

  bool parse_error(std::size_t bytes_read, const std::string&, const json::exception& error) {
    // The library's text begins with its own codes and its own line and column.
    std::string_view reason = error.what();
    reason.remove_prefix(std::min(reason.find("] ") + 2, reason.size()));
    if (const std::size_t column = reason.find(", column "); column != std::string_view::npos) {
      if (const std::size_t colon = reason.find(": ", column); colon != std::string_view::npos) {
        reason.remove_prefix(colon + 2);
      }
    }
    throw syntax_error(text_, source_name_, bytes_read, std::string(reason));
  }

 private:
  struct Container {
    json* value;
    std::string key;  // of the member being read, in an object
  };

  json* place(json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Container& parent = open_.back();
    if (parent.value->is_array()) {
      parent.value->push_back(std::move(value));
      return &parent.value->back();
    }
    json& member = (*parent.value)[parent.key];
    member = std::move(value);
    return &member;
  }

  bool add(json value) {
    place(std::move(value));
    return true;
  }

  bool open(json empty) {
    if (open_.size() == kMaxJsonDepth) {
      throw ConfigError::at_key(source_name_, path(),
                                "is nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
    }
    // Stays valid while open: its parent gets no other member before it is closed.
    json* const value = place(std::move(empty));
    open_.push_back({value, {}});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  /// Of the member being read: "a.b[2].c".
  std::string path() const {
    std::string result;
    for (const Container& container : open_) {
      if (container.value->is_array()) {
        // An outer array holds the element being read already, the innermost one does not.
        const std::size_t index = container.value->size() - (&container == &open_.back() ? 0 : 1);
        result += '[' + std::to_string(index) + ']';
      } else {
        if (!result.empty()) result += '.';
        result += container.key;
      }
    }
    return result;
  }

  std::string_view text_;
  const std::string& source_name_;
  json root_;
  std::vector<Container> open_;
};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

json parse_strict_json(std::string_view text, const std::string& source_name, std::size_t max_bytes) {
  if (text.size() > max_bytes) {
    throw ConfigError::of_source(source_name, "has " + std::to_string(text.size()) + " bytes, at most " +
                                                  std::to_string(max_bytes) + " are read");
  }
  if (auto quick = quick_json(text)) return std::move(*quick);
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw syntax_error(text, source_name, 1, "is empty, must be JSON");
  }
  // The library skips a byte order mark, and takes a NUL for the end of the text.
  if (text.starts_with("\xef\xbb\xbf")) {
    throw syntax_error(text, source_name, 1, "starts with a byte order mark; save it without");
  }
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw syntax_error(text, source_name, nul + 1, "holds a NUL byte");
  }
  StrictBuilder builder(text, source_name);
  json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

std::string read_text_file(const std::filesystem::path& file, std::size_t max_bytes) {
  const auto failed = [&file](const char* what, int error) {
    return ConfigError::of_source(file.string(),
                                  std::string(what) + ": " + std::generic_category().message(error));
  };
  const std::unique_ptr<std::FILE, CloseFile> stream(std::fopen(file.c_str(), "re"));
  if (!stream) throw failed("cannot be opened", errno);
  std::string text;
  char chunk[16 * 1024];
  while (text.size() <= max_bytes) {
    const std::size_t wanted = std::min(sizeof chunk, max_bytes - text.size() + 1);
    const std::size_t got = std::fread(chunk, 1, wanted, stream.get());
    if (std::ferror(stream.get()) != 0) throw failed("cannot be read", errno);
    text.append(chunk, got);
    if (got < wanted) return text;
  }
  throw ConfigError::of_source(file.string(), "has more than " + std::to_string(max_bytes) + " bytes");
}

}  // namespace gemmad
