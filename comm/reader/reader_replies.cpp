#include "comm/reader/reader_replies.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace gemmad {
namespace {

using Json = nlohmann::json;

constexpr int kProtocolVersion = 1;

[[noreturn]] void throw_protocol(const std::string& message) {
  throw ReaderError("protocol", "the daemon's answer makes no sense: " + message);
}

/// Runs `read`; what it cannot parse, find or convert is a protocol error.
template <typename Read>
auto checked(Read read) {
  try {
    return read();
  } catch (const Json::exception& error) {
    throw_protocol(error.what());
  }
}

void throw_if_refused(const Json& reply) {
  if (!reply.contains("ok") || reply.at("ok").get<bool>()) return;
  const Json& error = reply.at("error");
  throw ReaderError(error.at("code").get<std::string>(), error.at("message").get<std::string>());
}

std::uint64_t get_unsigned(const Json& object, const char* key) {
  const Json& value = object.at(key);
  if (!value.is_number_unsigned()) throw_protocol("\"" + std::string(key) + "\" is no count");
  return value.get<std::uint64_t>();
}

std::int64_t get_count(const Json& object, const char* key) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(get_unsigned(object, key), INT64_MAX));
}

std::optional<std::uint64_t> element_bytes(std::string_view dtype) {
  if (dtype == "F32" || dtype == "I32") return 4;
  if (dtype == "BF16" || dtype == "F16") return 2;
  if (dtype == "U8") return 1;
  return std::nullopt;
}

std::uint64_t bytes_of_shape(const Json& shape, std::uint64_t bytes) {
  for (const Json& extent : shape) {
    if (!extent.is_number_unsigned()) throw_protocol("a shape of what is no count");
    if (__builtin_mul_overflow(bytes, extent.get<std::uint64_t>(), &bytes))
      throw_protocol("a shape too large");
  }
  return bytes;
}

Reader::Tensor parse_tensor(const Json& json, const void* segment_data, std::uint64_t segment_bytes) {
  Reader::Tensor tensor;
  tensor.name = json.at("name").get<std::string>();
  tensor.dtype = json.at("dtype").get<std::string>();
  tensor.offset = get_unsigned(json, "offset");
  tensor.size_bytes = get_unsigned(json, "bytes");

  const auto unit_bytes = element_bytes(tensor.dtype);
  if (!unit_bytes) throw_protocol("tensor " + tensor.name + " has the unknown dtype " + tensor.dtype);
  if (!json.at("shape").is_array()) throw_protocol("tensor " + tensor.name + " has no shape");
  if (bytes_of_shape(json.at("shape"), *unit_bytes) != tensor.size_bytes) {
    throw_protocol("tensor " + tensor.name + " has not the bytes of its shape");
  }
  if (tensor.size_bytes > segment_bytes || tensor.offset > segment_bytes - tensor.size_bytes) {
    throw_protocol("tensor " + tensor.name + " leaves the segment");
  }
  if (tensor.offset % *unit_bytes != 0) throw_protocol("tensor " + tensor.name + " is not aligned");
  tensor.shape = json.at("shape").get<std::vector<std::int64_t>>();
  tensor.data = static_cast<const std::byte*>(segment_data) + tensor.offset;
  return tensor;
}

Reader::Prompt parse_prompt(const Json& json, const void* segment_data, std::uint64_t segment_bytes) {
  Reader::Prompt prompt;
  prompt.ok = json.at("status").get<std::string>() == "ok";
  if (!prompt.ok) {
    prompt.error_code = json.at("error").at("code").get<std::string>();
    prompt.error_message = json.at("error").at("message").get<std::string>();
    return prompt;
  }
  prompt.num_tokens = get_count(json, "tokens");
  prompt.padded_length = get_count(json, "padded_length");
  prompt.truncated = json.at("truncated").get<bool>();
  for (const Json& tensor : json.at("tensors")) {
    prompt.tensors.push_back(parse_tensor(tensor, segment_data, segment_bytes));
  }
  return prompt;
}

}  // namespace

ReaderGreeting parse_greeting(std::string_view line) {
  return checked([&] {
    const Json json = Json::parse(line);
    throw_if_refused(json);
    const std::uint64_t version = get_unsigned(json, "gemmad_reader");
    if (version != kProtocolVersion) {
      throw ReaderError("protocol", "the daemon speaks version " + std::to_string(version) +
                                        " of the reader protocol, this library version " +
                                        std::to_string(kProtocolVersion));
    }
    return ReaderGreeting{json.at("rank").get<int>(), get_unsigned(json, "segment_bytes")};
  });
}

ReaderReply parse_reply(std::string_view line) {
  return checked([&] {
    auto body = std::make_shared<const Json>(Json::parse(line));
    const Json& id = body->at("id");
    return ReaderReply{id.is_number_unsigned() ? id.get<std::uint64_t>() : 0, std::move(body)};
  });
}

AcquiredReply parse_acquired(const ReaderReply& reply, const void* segment_data,
                             std::uint64_t segment_bytes) {
  return checked([&] {
    const Json& json = *reply.body;
    throw_if_refused(json);
    AcquiredReply acquired{get_unsigned(json, "lease"), get_unsigned(json, "job"), {}};
    for (const Json& prompt : json.at("prompts")) {
      acquired.prompts.push_back(parse_prompt(prompt, segment_data, segment_bytes));
    }
    return acquired;
  });
}

std::string format_acquire(std::uint64_t id, std::uint64_t job, std::int64_t deadline_ms) {
  return Json{{"id", id}, {"op", "acquire"}, {"job", job}, {"deadline_ms", deadline_ms}}.dump();
}

std::string format_acquire(std::uint64_t id, const std::string& name, std::int64_t deadline_ms) {
  const Json request{{"id", id}, {"op", "acquire"}, {"name", name}, {"deadline_ms", deadline_ms}};
  try {
    return request.dump();
  } catch (const Json::exception&) {
    throw ReaderError("bad_request", "the name of a result is UTF-8");
  }
}

std::string format_release(std::uint64_t id, std::uint64_t lease) {
  return Json{{"id", id}, {"op", "release"}, {"lease", lease}}.dump();
}

}  // namespace gemmad
