#include "comm/reader_protocol.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

ReaderRequest good(std::string_view line) {
  const auto parsed = parse_reader_request(line);
  if (const auto* bad = std::get_if<BadReaderRequest>(&parsed)) FAIL(bad->message);
  return std::get<ReaderRequest>(parsed);
}

BadReaderRequest bad(std::string_view line) {
  const auto parsed = parse_reader_request(line);
  REQUIRE(std::holds_alternative<BadReaderRequest>(parsed));
  return std::get<BadReaderRequest>(parsed);
}

TEST_CASE("Reads an acquire by job id") {
  const ReaderRequest request = good(R"({"id":9007199254740992,"op":"acquire","job":12,"deadline_ms":5000})");
  CHECK(request.id == 9007199254740992u);
  const auto& acquire = std::get<AcquireRequest>(request.body);
  CHECK(acquire.key == ResultKey(JobId{12}));
  CHECK(acquire.deadline == std::chrono::milliseconds(5000));
}

TEST_CASE("Reads an acquire by name, with the default deadline") {
  const ReaderRequest request = good(R"( {"op":"acquire", "name":"sch\u00f6n", "id":0} )");
  const auto& acquire = std::get<AcquireRequest>(request.body);
  CHECK(acquire.key == ResultKey(std::string("schön")));
  CHECK(acquire.deadline == kDefaultAcquireDeadline);
}

TEST_CASE("Reads release and ping") {
  CHECK(std::get<ReleaseRequest>(good(R"({"id":2,"op":"release","lease":7})").body).lease == 7);
  CHECK(std::holds_alternative<PingRequest>(good(R"({"id":3,"op":"ping"})").body));
}

TEST_CASE("Refuses what is no request, and says why") {
  struct Case {
    std::string line;
    std::string reason;
  };
  const auto refused = GENERATE(
      Case{"hello", "not valid JSON"}, Case{"{\"id\":1,\"op\":\"ping\"", "not valid JSON"},
      Case{"{\"id\":1,\"op\":\"ping\"} x", "not valid JSON"},
      Case{"{\"id\":1,\"op\":\"\xff\"}", "not valid JSON"},
      Case{R"({"id":1,"op":"\ud800"})", "not valid JSON"},
      Case{std::string("{\"id\":1,\0}", 10), "not valid JSON"},
      Case{R"({"id":1e999,"op":"ping"})", "not valid JSON"}, Case{"[1,2]", "a request is a JSON object"},
      Case{"null", "a request is a JSON object"}, Case{"7", "a request is a JSON object"},
      Case{R"({"op":"ping"})", "\"id\" is missing"},
      Case{R"({"id":"a","op":"ping"})", "\"id\" is an integer"},
      Case{R"({"id":-1,"op":"ping"})", "\"id\" is an integer"},
      Case{R"({"id":1.0,"op":"ping"})", "\"id\" is an integer"},
      Case{R"({"id":9007199254740993,"op":"ping"})", "\"id\" is an integer"},
      Case{R"({"id":99999999999999999999,"op":"ping"})", "\"id\" is an integer"},
      Case{R"({"id":1})", "\"op\" is missing"}, Case{R"({"id":1,"op":2})", "\"op\" is a string"},
      Case{R"({"id":1,"op":"steal"})", "unknown op \"steal\""},
      Case{R"({"id":1,"id":2,"op":"ping"})", "\"id\" is given twice"},
      Case{R"({"id":1,"op":"ping","job":1})", "unknown key \"job\""},
      Case{R"({"id":1,"op":"ping","x":[1]})", "none is a list or an object"},
      Case{R"({"id":1,"op":"ping","x":{}})", "none is a list or an object"},
      Case{R"({"id":1,"op":"acquire"})", "either \"job\" or \"name\""},
      Case{R"({"id":1,"op":"acquire","job":1,"name":"x"})", "either \"job\" or \"name\""},
      Case{R"({"id":1,"op":"acquire","job":0})", "\"job\" is an integer"},
      Case{R"({"id":1,"op":"acquire","job":"1"})", "\"job\" is an integer"},
      Case{R"({"id":1,"op":"acquire","job":true})", "\"job\" is an integer"},
      Case{R"({"id":1,"op":"acquire","name":""})", "\"name\" is a string"},
      Case{R"({"id":1,"op":"acquire","name":5})", "\"name\" is a string"},
      Case{R"({"id":1,"op":"acquire","name":")" + std::string(129, 'n') + "\"}",
           "\"name\" is a string of 1 to 128"},
      Case{R"({"id":1,"op":"acquire","job":1,"deadline_ms":-1})", "\"deadline_ms\" is an integer"},
      Case{R"({"id":1,"op":"acquire","job":1,"deadline_ms":86400001})", "\"deadline_ms\" is an integer"},
      Case{R"({"id":1,"op":"acquire","job":1,"deadline":1})", "unknown key \"deadline\""},
      Case{R"({"id":1,"op":"release"})", "\"lease\" is missing"},
      Case{R"({"id":1,"op":"release","lease":1.5})", "\"lease\" is an integer"});
  CAPTURE(refused.line);
  CHECK(bad(refused.line).message.find(refused.reason) != std::string::npos);
}

TEST_CASE("The id of a bad request is kept where it can be read") {
  CHECK(bad(R"({"id":5,"op":"steal"})").id == 5u);
  CHECK(bad(R"({"op":"steal"})").id == std::nullopt);
  CHECK(bad("x").id == std::nullopt);
}

TEST_CASE("Nesting without end is refused at once") {
  CHECK(bad(std::string(1'000'000, '[')).message.find("none is a list") != std::string::npos);
  CHECK(bad(R"({"id":)" + std::string(1'000'000, '{')).message.find("none is a list") != std::string::npos);
}

TEST_CASE("A long piece of a client's text is not sent back whole") {
  CHECK(bad(R"({"id":1,"op":")" + std::string(10'000, 'o') + "\"}").message.size() < 200);
}

TEST_CASE("An acquired result is told tensor by tensor") {
  PromptResult fine;
  fine.ok = true;
  fine.num_tokens = 12;
  fine.padded_length = 1024;
  fine.tensors = {{"hidden_states.0", DType::kBF16, Shape{12, 96}, 4096, 2304}};
  PromptResult failed;
  failed.error_code = "too_long";
  failed.error_message = "not UTF-8: \xff";
  const Acquired acquired{7, 12,
                          std::make_shared<const std::vector<PromptResult>>(std::vector{fine, failed})};
  const auto reply = nlohmann::json::parse(format_acquired(1, acquired));
  CHECK(reply == nlohmann::json::parse(R"({"id":1,"ok":true,"lease":7,"job":12,"prompts":[
    {"status":"ok","tokens":12,"padded_length":1024,"truncated":false,"tensors":[
      {"name":"hidden_states.0","dtype":"BF16","shape":[12,96],"offset":4096,"bytes":2304}]},
    {"status":"error","error":{"code":"too_long","message":"not UTF-8: \ufffd"}}]})"));
}

TEST_CASE("Replies stay on one line") {
  const std::string reply = format_error(std::nullopt, "bad_request", "two\nlines");
  CHECK(reply.find('\n') == std::string::npos);
  CHECK(nlohmann::json::parse(reply) ==
        nlohmann::json::parse(
            R"({"id":null,"ok":false,"error":{"code":"bad_request","message":"two\nlines"}})"));
  CHECK(nlohmann::json::parse(format_greeting(2, 8192)) ==
        nlohmann::json::parse(R"({"gemmad_reader":1,"rank":2,"segment_bytes":8192})"));
  CHECK(nlohmann::json::parse(format_ok(4)) == nlohmann::json::parse(R"({"id":4,"ok":true})"));
}

}  // namespace
}  // namespace gemmad
