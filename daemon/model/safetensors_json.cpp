#include "daemon/model/safetensors_json.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "config/config_error.h"
#include "daemon/model/model_file_error.h"
#include "daemon/model/safetensors_header.h"

namespace gemmad {
namespace {

// A state machine over the parser's events. Every handler that meets what the form does not allow ends the
// parse.
class HeaderHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  RawSafetensorsHeader take_header() { return std::move(header_); }
  const std::string& problem() const { return problem_; }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kTop;
        return true;
      case Place::kTopValue:
        place_ = key_ == "__metadata__" ? Place::kMetadata : Place::kTensor;
        seen_keys_.clear();
        if (place_ == Place::kTensor) header_.tensors.push_back({key_, {}, {}, {}});
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool key(string_t& key) override {
    switch (place_) {
      case Place::kTop:
        if (!seen_names_.insert(key).second) return refuse(quoted(key) + " is there twice");
        key_ = key;
        place_ = Place::kTopValue;
        return true;
      case Place::kTensor:
        return tensor_key(key);
      case Place::kMetadata:
        metadata_ = header_.metadata.try_emplace(key).first;
        if (!seen_keys_.insert(key).second) return refuse("metadata " + quoted(key) + " is there twice");
        place_ = Place::kMetadataValue;
        return true;
      default:
        return unexpected("a name");
    }
  }

  bool end_object() override {
    if (place_ == Place::kTensor && seen_keys_.size() != 3) {
      return refuse("tensor " + quoted(header_.tensors.back().name) + " lacks dtype, shape or data_offsets");
    }
    place_ = place_ == Place::kTop ? Place::kEnd : Place::kTop;
    return true;
  }

  bool string(string_t& value) override {
    switch (place_) {
      case Place::kDType:
        header_.tensors.back().dtype = value;
        place_ = Place::kTensor;
        return true;
      case Place::kMetadataValue:
        metadata_->second = std::move(value);
        place_ = Place::kMetadata;
        return true;
      default:
        return unexpected("a string");
    }
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kShapeValue) return enter(Place::kShape);
    if (place_ == Place::kOffsetsValue) return enter(Place::kOffsets);
    return unexpected("an array");
  }
  bool end_array() override { return enter(Place::kTensor); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) return unexpected("a number");
    std::vector<std::uint64_t>& list =
        place_ == Place::kShape ? header_.tensors.back().shape : header_.tensors.back().offsets;
    if (list.size() >= kMaxSafetensorsRank) {
      return refuse("tensor " + quoted(header_.tensors.back().name) + " has a list of more than " +
                    std::to_string(kMaxSafetensorsRank) + " numbers");
    }
    list.push_back(value);
    return true;
  }

  bool number_integer(number_integer_t value) override {
    return unexpected("the number " + std::to_string(value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected("the number " + printable(text));
  }
  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return refuse("the header is not valid JSON at its byte " + std::to_string(position));
  }

 private:
  enum class Place {
    kStart,
    kTop,
    kTopValue,
    kTensor,
    kDType,
    kShapeValue,
    kShape,
    kOffsetsValue,
    kOffsets,
    kMetadata,
    kMetadataValue,
    kEnd,
  };

  static std::string quoted(const std::string& text) {
    return std::string("'").append(printable(text, 200)).append("'");
  }

  bool enter(Place place) {
    place_ = place;
    return true;
  }

  bool tensor_key(const std::string& key) {
    if (!seen_keys_.insert(key).second) {
      return refuse("tensor " + quoted(header_.tensors.back().name) + " has " + quoted(key) + " twice");
    }
    if (key == "dtype") return enter(Place::kDType);
    if (key == "shape") return enter(Place::kShapeValue);
    if (key == "data_offsets") return enter(Place::kOffsetsValue);
    return refuse("tensor " + quoted(header_.tensors.back().name) + " has an unknown field " + quoted(key));
  }

  bool refuse(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  bool unexpected(const std::string& what) {
    return refuse("the header has " + what + " where its form has none, at " +
                  (key_.empty() ? "its start" : quoted(key_)));
  }

  Place place_ = Place::kStart;
  std::string key_;  // of the top level
  std::unordered_set<std::string> seen_names_;
  std::unordered_set<std::string> seen_keys_;  // of the object inside
  RawSafetensorsHeader header_;
  decltype(header_.metadata)::iterator metadata_;  // the one being read
  std::string problem_;
};

}  // namespace

RawSafetensorsHeader parse_safetensors_json(std::span<const std::byte> json, const std::string& source_name) {
  HeaderHandler handler;
  const auto* begin = reinterpret_cast<const char*>(json.data());
  if (!nlohmann::json::sax_parse(begin, begin + json.size(), &handler)) {
    throw ModelFileError(source_name + ": " + handler.problem());
  }
  return handler.take_header();
}

}  // namespace gemmad
