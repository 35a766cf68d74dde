#include "daemon/protocol_enhance.h"

#include "daemon/protocol_fields.h"

namespace gemmad {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxPromptBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxSystemPromptBytes = std::size_t{64} << 10;
constexpr std::int64_t kMaxImageSide = 65536;
// What every JSON reader keeps exactly.
constexpr std::int64_t kMaxSeed = (std::int64_t{1} << 53) - 1;

void expect_enhancer(const ProtocolLimits& limits) {
  if (limits.has_enhancer) return;
  throw RefusedField(
      "no_enhancer",
      "this daemon rewrites no prompts: its model was made without files, and has no tokenizer; "
      "name one that has with enhancer.model in its config");
}

/// Text of at most `max_bytes`, or none.
std::string bounded_text(const json& value, const std::string& what, std::size_t max_bytes) {
  if (!value.is_string()) throw FieldError(what + " is not a string");
  const auto& text = value.get_ref<const std::string&>();
  if (text.size() > max_bytes) {
    throw FieldError(what + " has " + std::to_string(text.size()) + " bytes; at most " +
                     std::to_string(max_bytes) + " are allowed");
  }
  return text;
}

RawImage parse_raw_image(JsonFields& fields, const json& shape) {
  const std::string what = "an item of the image's 'shape'";
  if (to_array(shape, "the image's 'shape'", 3).size() != 3)
    throw FieldError("the image's 'shape' is not [height, width, 3]");
  RawImage image;
  image.height = to_integer(shape[0], what, 1, kMaxImageSide);
  image.width = to_integer(shape[1], what, 1, kMaxImageSide);
  to_integer(shape[2], "the image's number of channels", 3, 3);
  const json& data = fields.need("data");
  if (!data.is_string()) throw FieldError("the image's 'data' is not a string of base64");
  // Three bytes a pixel are four letters, without padding.
  const auto letters = static_cast<std::size_t>(4 * image.height * image.width);
  image.base64 = data.get<std::string>();
  if (image.base64.size() != letters) {
    throw FieldError("the image's 'data' has " + std::to_string(image.base64.size()) +
                     " letters of base64; its shape [" + std::to_string(image.height) + ", " +
                     std::to_string(image.width) + ", 3] takes " + std::to_string(letters));
  }
  return image;
}

ImageInput parse_image(const json& value) {
  if (!value.is_object()) {
    throw FieldError(
        "field 'image' is neither {\"shape\": [height, width, 3], \"data\": base64} nor {\"file\": base64}");
  }
  JsonFields fields(value, "image");
  const json* file = fields.find("file");
  ImageInput image;
  if (file == nullptr) {
    image = parse_raw_image(fields, fields.need("shape"));
  } else {
    if (!file->is_string() || file->get_ref<const std::string&>().empty())
      throw FieldError("the image's 'file' is not the base64 of a PNG or JPEG file");
    image = ImageFile{file->get<std::string>()};
  }
  fields.expect_no_others();
  return image;
}

SamplingParams parse_sampling(JsonFields& fields, const ProtocolLimits& limits) {
  SamplingParams sampling;
  sampling.greedy = fields.boolean("greedy", sampling.greedy);
  if (const json* value = fields.find("temperature"))
    sampling.temperature = to_positive(*value, "field 'temperature'", 100);
  if (const json* value = fields.find("top_k"))
    sampling.top_k = to_integer(*value, "field 'top_k'", 0, limits.enhancer_vocab_size);
  if (const json* value = fields.find("top_p")) sampling.top_p = to_positive(*value, "field 'top_p'", 1);
  if (const json* value = fields.find("seed"))
    sampling.seed = static_cast<std::uint64_t>(to_integer(*value, "field 'seed'", 0, kMaxSeed));
  if (const json* value = fields.find("no_repeat_ngram"))
    sampling.no_repeat_ngram = to_integer(*value, "field 'no_repeat_ngram'", 0, 64);
  return sampling;
}

/// All but the image.
EnhanceOptions parse_options(JsonFields& fields, const ProtocolLimits& limits) {
  EnhanceOptions options;
  if (const json* value = fields.find("system_prompt"))
    options.system_prompt = bounded_text(*value, "field 'system_prompt'", kMaxSystemPromptBytes);
  if (const json* value = fields.find("max_new_tokens"))
    options.max_new_tokens = to_integer(*value, "field 'max_new_tokens'", 1, limits.enhance_context);
  options.sampling = parse_sampling(fields, limits);
  options.cleans = fields.boolean("clean", options.cleans);
  options.guards_circles = fields.boolean("guard", options.guards_circles);
  options.streams = fields.boolean("stream", options.streams);
  return options;
}

void expect_vision(const ProtocolLimits& limits) {
  if (limits.has_vision) return;
  throw RefusedField(
      "no_vision",
      "this daemon's model sees no images: leave the image out (enhance_t2v), or name a model with a "
      "vision tower with enhancer.model in its config");
}

EnhanceRequest parse_request_but_image(JsonFields& fields, const ProtocolLimits& limits) {
  expect_enhancer(limits);
  EnhanceRequest request;
  request.prompt = bounded_text(fields.need("prompt"), "field 'prompt'", kMaxPromptBytes);
  request.options = parse_options(fields, limits);
  request.name = parse_name(fields);
  request.readers = parse_readers(fields);
  request.deadline_ms = parse_deadline(fields, limits);
  return request;
}

}  // namespace

EnhanceRequest parse_enhance_t2v(JsonFields& fields, const ProtocolLimits& limits) {
  EnhanceRequest request = parse_request_but_image(fields, limits);
  if (fields.find("image") != nullptr)
    throw FieldError("enhance_t2v takes no field 'image': enhance_i2v rewrites a prompt that has one");
  return request;
}

EnhanceRequest parse_enhance_i2v(JsonFields& fields, const ProtocolLimits& limits) {
  EnhanceRequest request = parse_request_but_image(fields, limits);
  expect_vision(limits);
  const json* image = fields.find("image");
  if (image == nullptr)
    throw FieldError("field 'image' is missing: enhance_t2v rewrites a prompt that has none");
  request.options.image = parse_image(*image);
  return request;
}

std::optional<EnhanceOptions> parse_enhance_field(const json& value, const ProtocolLimits& limits) {
  if (value.is_boolean() && !value.get<bool>()) return std::nullopt;
  if (!value.is_boolean() && !value.is_object())
    throw FieldError("field 'enhance' is neither true nor false nor an object of options");
  expect_enhancer(limits);
  if (value.is_boolean()) return EnhanceOptions{};
  JsonFields fields(value, "enhance");
  EnhanceOptions options = parse_options(fields, limits);
  if (const json* image = fields.find("image")) {
    expect_vision(limits);
    options.image = parse_image(*image);
  }
  fields.expect_no_others();
  return options;
}

}  // namespace gemmad
