#include "comm/reader_protocol.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

namespace gemmad {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxRequestId = std::uint64_t{1} << 53;
// A request is one flat object. Refusing more while parsing keeps hostile nesting from costing anything.
constexpr int kMaxDepth = 1;

/// Ends the parsing of one line; never leaves this file.
struct Refusal {
  std::string message;
};

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// The start of a client's text, fit to be quoted in a message.
std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMaxQuotedBytes = 40;
  const bool cut = text.size() > kMaxQuotedBytes;
  return dump(Json(std::string(text.substr(0, kMaxQuotedBytes)) + (cut ? "..." : "")));
}

Json parse_object(std::string_view line) {
  std::set<std::string> keys;
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if ((event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) &&
        depth >= kMaxDepth) {
      throw Refusal{"the fields of a request are numbers and strings, none is a list or an object"};
    }
    if (event == Json::parse_event_t::key && !keys.insert(parsed.get<std::string>()).second) {
      throw Refusal{"key " + in_quotes(parsed.get<std::string>()) + " is given twice"};
    }
    return true;
  };
  Json object;
  try {
    object = Json::parse(line, check);
  } catch (const Json::parse_error& error) {
    throw Refusal{"not valid JSON, at byte " + std::to_string(error.byte)};
  } catch (const Json::exception&) {
    throw Refusal{"not valid JSON: a number out of range"};
  }
  if (!object.is_object()) throw Refusal{"a request is a JSON object"};
  return object;
}

void check_keys(const Json& object, std::initializer_list<std::string_view> allowed) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      throw Refusal{"unknown key " + in_quotes(key)};
    }
  }
}

std::uint64_t get_unsigned(const Json& object, const char* key, std::uint64_t least, std::uint64_t most) {
  const auto value = object.find(key);
  if (value == object.end()) throw Refusal{"key \"" + std::string(key) + "\" is missing"};
  if (!value->is_number_unsigned() || value->get<std::uint64_t>() < least ||
      value->get<std::uint64_t>() > most) {
    throw Refusal{"\"" + std::string(key) + "\" is an integer from " + std::to_string(least) + " to " +
                  std::to_string(most)};
  }
  return value->get<std::uint64_t>();
}

std::string get_op(const Json& object) {
  const auto value = object.find("op");
  if (value == object.end()) throw Refusal{"key \"op\" is missing"};
  if (!value->is_string()) throw Refusal{"\"op\" is a string"};
  return value->get<std::string>();
}

ResultKey get_result_key(const Json& object) {
  const auto name = object.find("name");
  if (object.contains("job") == (name != object.end())) {
    throw Refusal{"acquire takes either \"job\" or \"name\""};
  }
  if (name == object.end()) return get_unsigned(object, "job", 1, std::numeric_limits<JobId>::max());
  if (!name->is_string() || name->get_ref<const std::string&>().empty() ||
      name->get_ref<const std::string&>().size() > kMaxResultNameBytes) {
    throw Refusal{"\"name\" is a string of 1 to " + std::to_string(kMaxResultNameBytes) + " bytes"};
  }
  return name->get<std::string>();
}

AcquireRequest parse_acquire(const Json& object) {
  check_keys(object, {"id", "op", "job", "name", "deadline_ms"});
  AcquireRequest acquire{get_result_key(object)};
  if (object.contains("deadline_ms")) {
    acquire.deadline = std::chrono::milliseconds(
        get_unsigned(object, "deadline_ms", 0, static_cast<std::uint64_t>(kMaxAcquireDeadline.count())));
  }
  return acquire;
}

ReaderRequest parse_request(const Json& object, RequestId id) {
  const std::string op = get_op(object);
  if (op == "acquire") return {id, parse_acquire(object)};
  if (op == "release") {
    check_keys(object, {"id", "op", "lease"});
    return {id, ReleaseRequest{get_unsigned(object, "lease", 0, std::numeric_limits<LeaseId>::max())}};
  }
  if (op == "ping") {
    check_keys(object, {"id", "op"});
    return {id, PingRequest{}};
  }
  throw Refusal{"unknown op " + in_quotes(op) + "; there are acquire, release and ping"};
}

Json describe(const TensorInfo& tensor) {
  return {{"name", tensor.name},
          {"dtype", name(tensor.dtype)},
          {"shape", std::vector<std::int64_t>(tensor.shape.extents().begin(), tensor.shape.extents().end())},
          {"offset", tensor.offset},
          {"bytes", tensor.size_bytes}};
}

Json describe(std::string_view code, std::string_view message) {
  return {{"code", code}, {"message", message}};
}

Json describe(const PromptResult& prompt) {
  if (!prompt.ok) return {{"status", "error"}, {"error", describe(prompt.error_code, prompt.error_message)}};
  Json tensors = Json::array();
  for (const TensorInfo& tensor : prompt.tensors)
    tensors.push_back(describe(tensor));
  return {{"status", "ok"},
          {"tokens", prompt.num_tokens},
          {"padded_length", prompt.padded_length},
          {"truncated", prompt.truncated},
          {"tensors", std::move(tensors)}};
}

}  // namespace

std::variant<ReaderRequest, BadReaderRequest> parse_reader_request(std::string_view line) {
  std::optional<RequestId> id;
  try {
    const Json object = parse_object(line);
    id = get_unsigned(object, "id", 0, kMaxRequestId);
    return parse_request(object, *id);
  } catch (const Refusal& refusal) {
    return BadReaderRequest{id, refusal.message};
  }
}

std::string format_greeting(int rank, std::uint64_t segment_bytes) {
  return dump({{"gemmad_reader", kReaderProtocolVersion}, {"rank", rank}, {"segment_bytes", segment_bytes}});
}

std::string format_ok(RequestId id) {
  return dump({{"id", id}, {"ok", true}});
}

std::string format_acquired(RequestId id, const Acquired& acquired) {
  Json prompts = Json::array();
  for (const PromptResult& prompt : *acquired.prompts)
    prompts.push_back(describe(prompt));
  return dump({{"id", id},
               {"ok", true},
               {"lease", acquired.lease},
               {"job", acquired.job},
               {"prompts", std::move(prompts)}});
}

std::string format_error(std::optional<RequestId> id, std::string_view code, std::string_view message) {
  return dump({{"id", id ? Json(*id) : Json(nullptr)}, {"ok", false}, {"error", describe(code, message)}});
}

}  // namespace gemmad
