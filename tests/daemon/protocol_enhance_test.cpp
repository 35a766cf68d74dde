#include "daemon/protocol_enhance.h"

#include "daemon/enhancement.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

ProtocolLimits limits() {
  ProtocolLimits limits;
  limits.max_line_bytes = 4 << 20;
  limits.num_layers = 8;
  limits.has_enhancer = true;
  limits.has_vision = true;
  limits.enhancer_vocab_size = 100;
  limits.enhance_context = 64;
  return limits;
}

Request parse(const std::string& line, const ProtocolLimits& limits = gemmad::limits()) {
  return parse_request(line, limits);
}

EnhanceRequest parse_t2v(const std::string& fields) {
  return std::get<EnhanceRequest>(
      parse(R"({"id":1,"op":"enhance_t2v","prompt":"a dog")" + fields + "}").command);
}

std::string line_of_i2v(const std::string& image) {
  return R"({"id":1,"op":"enhance_i2v","prompt":"a dog","image":)" + image + "}";
}

EncodeRequest parse_encode(const std::string& enhance) {
  return std::get<EncodeRequest>(
      parse(R"({"id":1,"op":"encode","prompts":["a dog","b"],"enhance":)" + enhance + "}").command);
}

/// "CODE: MESSAGE" of the refusal.
std::string refusal_of(const std::string& line, const ProtocolLimits& limits = gemmad::limits()) {
  try {
    parse(line, limits);
  } catch (const ProtocolError& error) {
    CHECK(error.id() == "1");
    return error.code() + ": " + error.what();
  }
  return "accepted";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("an enhance_t2v takes the defaults of sampling unless it says otherwise") {
  const EnhanceRequest request = parse_t2v("");
  CHECK(request.prompt == "a dog");
  CHECK(request.options.sampling == SamplingParams{});
  CHECK_FALSE(request.options.image.has_value());
  CHECK_FALSE(request.options.system_prompt.has_value());
  CHECK_FALSE(request.options.max_new_tokens.has_value());
  CHECK(request.options.cleans);
  CHECK(request.options.guards_circles);
  CHECK_FALSE(request.options.streams);
  CHECK(request.name.empty());
  CHECK(request.readers == 0);
  CHECK_FALSE(request.deadline_ms.has_value());
  CHECK(parse(R"({"id":1,"op":"enhance_t2v","prompt":""})").op == "enhance_t2v");
}

TEST_CASE("an enhance_t2v takes every option") {
  const EnhanceRequest request = parse_t2v(
      R"(,"system_prompt":"be short","max_new_tokens":64,"seed":9007199254740991,"temperature":100,"top_k":100,)"
      R"("top_p":0.25,"greedy":true,"no_repeat_ngram":64,"clean":false,"guard":false,"stream":true,"name":"n","readers":3,)"
      R"("deadline_ms":70)");
  CHECK(request.options.system_prompt == "be short");
  CHECK(request.options.max_new_tokens == 64);
  const SamplingParams expected{true, 100.0, 100, 0.25, 9007199254740991, 64};
  CHECK(request.options.sampling == expected);
  CHECK_FALSE(request.options.cleans);
  CHECK_FALSE(request.options.guards_circles);
  CHECK(request.options.streams);
  CHECK(request.name == "n");
  CHECK(request.readers == 3);
  CHECK(request.deadline_ms == 70);
}

TEST_CASE("an empty system prompt is one") {
  CHECK(parse_t2v(R"(,"system_prompt":"")").options.system_prompt == "");
}

TEST_CASE("options of enhancement out of their bounds are refused by name") {
  for (const std::string field : {R"("temperature":0)",
                                  R"("temperature":-1)",
                                  R"("temperature":100.5)",
                                  R"("temperature":"1")",
                                  R"("top_p":0)",
                                  R"("top_p":1.01)",
                                  R"("top_p":true)",
                                  R"("top_k":-1)",
                                  R"("top_k":101)",
                                  R"("top_k":1.5)",
                                  R"("max_new_tokens":0)",
                                  R"("max_new_tokens":65)",
                                  R"("seed":-1)",
                                  R"("seed":9007199254740992)",
                                  R"("no_repeat_ngram":-1)",
                                  R"("no_repeat_ngram":65)",
                                  R"("greedy":1)",
                                  R"("clean":"no")",
                                  R"("guard":1)",
                                  R"("stream":1)",
                                  R"("system_prompt":7)",
                                  R"("name":"")",
                                  R"("readers":0)",
                                  R"("deadline_ms":0)",
                                  R"("beams":2)"}) {
    CAPTURE(field);
    const std::string refusal = refusal_of(R"({"id":1,"op":"enhance_t2v","prompt":"a",)" + field + "}");
    CHECK(contains(refusal, "bad_request: "));
    CHECK(contains(refusal, field.substr(1, field.find(':') - 2)));
  }
  CHECK(contains(refusal_of(R"({"id":1,"op":"enhance_t2v"})"), "field 'prompt' is missing"));
  CHECK(contains(refusal_of(R"({"id":1,"op":"enhance_t2v","prompt":7})"), "field 'prompt' is not a string"));
}

TEST_CASE("a system prompt or a prompt that is too long is refused with its size and the limit") {
  const auto line = [](std::size_t prompt, std::size_t system_prompt) {
    return R"({"id":1,"op":"enhance_t2v","prompt":")" + std::string(prompt, 'p') + R"(","system_prompt":")" +
           std::string(system_prompt, 's') + "\"}";
  };
  CHECK(refusal_of(line(1 << 20, 65536)) == "accepted");
  CHECK(refusal_of(line(1, 65537)) ==
        "bad_request: field 'system_prompt' has 65537 bytes; at most 65536 are allowed");
  CHECK(refusal_of(line((1 << 20) + 1, 1)) ==
        "bad_request: field 'prompt' has 1048577 bytes; at most 1048576 are allowed");
}

TEST_CASE("an image comes as pixels whose number fits the shape, or as a file") {
  const Request raw = parse(line_of_i2v(R"({"shape":[1,2,3],"data":"AAECAwQF"})"));
  CHECK(raw.op == "enhance_i2v");
  const auto pixels = std::get<RawImage>(*std::get<EnhanceRequest>(raw.command).options.image);
  CHECK(pixels.height == 1);
  CHECK(pixels.width == 2);
  CHECK(pixels.base64 == "AAECAwQF");
  const Request file = parse(line_of_i2v(R"({"file":"iVBORw=="})"));
  CHECK(std::get<ImageFile>(*std::get<EnhanceRequest>(file.command).options.image).base64 == "iVBORw==");
}

TEST_CASE("an image that is none is refused with what is wrong") {
  const auto said = [](const std::string& image) { return refusal_of(line_of_i2v(image)); };
  CHECK(contains(said("7"), "field 'image' is neither"));
  CHECK(contains(said("{}"), "field 'shape' of image is missing"));
  CHECK(contains(said(R"({"shape":[1,2,3]})"), "field 'data' of image is missing"));
  CHECK(contains(said(R"({"shape":[1,2],"data":""})"), "not [height, width, 3]"));
  CHECK(contains(said(R"({"shape":[1,2,4],"data":""})"), "number of channels is 4"));
  CHECK(contains(said(R"({"shape":[0,2,3],"data":""})"), "'shape' is 0"));
  CHECK(contains(said(R"({"shape":[65537,2,3],"data":""})"), "'shape' is 65537"));
  CHECK(contains(said(R"({"shape":[1,2,3],"data":"AAAA"})"),
                 "has 4 letters of base64; its shape [1, 2, 3] takes 8"));
  CHECK(contains(said(R"({"shape":[1,2,3],"data":7})"), "not a string of base64"));
  CHECK(contains(said(R"({"file":""})"), "PNG or JPEG"));
  CHECK(contains(said(R"({"file":7})"), "PNG or JPEG"));
  CHECK(contains(said(R"({"file":"AA==","shape":[1,2,3]})"), "unknown field 'shape' of image"));
}

TEST_CASE(
    "an image where there should be none, or none where there should be one, is refused with the other op") {
  CHECK(contains(refusal_of(R"({"id":1,"op":"enhance_t2v","prompt":"a","image":{"file":"AA=="}})"),
                 "bad_request: enhance_t2v takes no field 'image': enhance_i2v"));
  CHECK(contains(refusal_of(R"({"id":1,"op":"enhance_i2v","prompt":"a"})"),
                 "bad_request: field 'image' is missing: enhance_t2v"));
}

TEST_CASE("what this daemon cannot do is refused by a code of its own") {
  const std::string t2v = R"({"id":1,"op":"enhance_t2v","prompt":"a"})";
  const std::string i2v = line_of_i2v(R"({"file":"AA=="})");
  const std::string encode = R"({"id":1,"op":"encode","prompts":["a"],"enhance":true})";
  ProtocolLimits no_text = limits();
  no_text.takes_text = false;
  CHECK(std::holds_alternative<EnhanceRequest>(
      parse_request(t2v, no_text).command));  // the enhancer has its own
  CHECK(contains(refusal_of(encode, no_text), "no_tokenizer: "));
  ProtocolLimits no_enhancer = limits();
  no_enhancer.has_enhancer = false;
  CHECK(contains(refusal_of(t2v, no_enhancer), "no_enhancer: "));
  CHECK(contains(refusal_of(encode, no_enhancer), "no_enhancer: "));
  ProtocolLimits blind = limits();
  blind.has_vision = false;
  CHECK(refusal_of(t2v, blind) == "accepted");
  CHECK(contains(refusal_of(i2v, blind), "no_vision: "));
  CHECK(contains(
      refusal_of(R"({"id":1,"op":"encode","prompts":["a"],"enhance":{"image":{"file":"AA=="}}})", blind),
      "no_vision: "));
}

TEST_CASE("an encode may have its first prompt rewritten, with all options or none") {
  CHECK_FALSE(parse_encode("false").enhance.has_value());
  REQUIRE(parse_encode("true").enhance.has_value());
  CHECK(parse_encode("true").enhance->sampling == SamplingParams{});
  const EncodeRequest request =
      parse_encode(R"({"seed":4,"stream":true,"image":{"file":"AA=="},"system_prompt":"s"})");
  REQUIRE(request.enhance.has_value());
  CHECK(request.enhance->sampling.seed == 4);
  CHECK(request.enhance->streams);
  CHECK(request.enhance->image.has_value());
  CHECK(request.enhance->system_prompt == "s");
}

TEST_CASE("an encode whose first prompt cannot be rewritten is refused") {
  CHECK(contains(refusal_of(R"({"id":1,"op":"encode","prompts":[],"enhance":true})"), "must be text"));
  CHECK(contains(refusal_of(R"({"id":1,"op":"encode","prompts":[{"input_ids":[2]},"a"],"enhance":{}})"),
                 "must be text"));
  CHECK(
      contains(refusal_of(R"({"id":1,"op":"encode","prompts":["a"],"enhance":1})"), "'enhance' is neither"));
  CHECK(contains(refusal_of(R"({"id":1,"op":"encode","prompts":["a"],"enhance":{"beams":2}})"),
                 "unknown field 'beams' of enhance"));
  CHECK(refusal_of(R"({"id":1,"op":"encode","prompts":[{"input_ids":[2]}],"enhance":false})") == "accepted");
}

}  // namespace
}  // namespace gemmad
