#include "daemon/replies.h"

#include <nlohmann/json.hpp>

#include "daemon/metrics.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

using nlohmann::json;

CompletedJob published() {
  CompletedJob job;
  job.id = 9;
  job.outcome.kind = JobOutcome::Kind::kPublished;
  PromptResult good;
  good.ok = true;
  good.num_tokens = 3;
  good.padded_length = 1024;
  good.tensors.push_back({"hidden_states.0", DType::kF32, Shape{3, 96}, 4096, 1152});
  PromptResult bad;
  bad.error_code = "bad_token";
  bad.error_message = "input_ids[0] is -1";
  job.outcome.prompts = {good, bad};
  job.queue_ms = 1.23456;
  return job;
}

TEST_CASE("a reply is one line that leads with id and outcome") {
  const std::string line = ok_reply("\"a\"", {{"x", 1}});
  CHECK(line == R"({"id":"a","ok":true,"x":1})");
  CHECK(ok_reply("7", json::object()) == R"({"id":7,"ok":true})");
  CHECK(error_reply("null", "bad_request", "a\nb").find('\n') == std::string::npos);
}

TEST_CASE("an error reply carries code and message, whatever bytes are in it") {
  const json reply = json::parse(error_reply("1", "bad_request", "cut inside \xe2\x82"));
  CHECK(reply["ok"] == false);
  CHECK(reply["error"]["code"] == "bad_request");
}

TEST_CASE("an encode reply tells job, prompts, tensors and times") {
  EncodeContext context;
  context.id = "5";
  context.name = "clip";
  const json reply = json::parse(encode_reply(context, published()));
  CHECK(reply["id"] == 5);
  CHECK(reply["ok"] == true);
  CHECK(reply["job"] == 9);
  CHECK(reply["name"] == "clip");
  CHECK(reply["prompts"][0]["status"] == "ok");
  CHECK(reply["prompts"][0]["tokens"] == 3);
  CHECK(reply["prompts"][0]["tensors"][0] ==
        json({{"name", "hidden_states.0"}, {"dtype", "F32"}, {"shape", {3, 96}}}));
  CHECK(reply["prompts"][1]["status"] == "error");
  CHECK(reply["prompts"][1]["error"]["code"] == "bad_token");
  CHECK(reply["ms"]["queue"] == 1.235);
}

TEST_CASE("a failed encode's reply is an error reply") {
  CompletedJob job;
  job.outcome.failure = {"deadline", "too late"};
  const json reply = json::parse(encode_reply({"5", "", false, {}, {}}, job));
  CHECK(reply["ok"] == false);
  CHECK(reply["error"]["code"] == "deadline");
}

TEST_CASE("ids come back only when asked for") {
  EncodeContext context;
  context.id = "5";
  CHECK_FALSE(json::parse(encode_reply(context, published()))["prompts"][0].contains("input_ids"));
  context.return_input_ids = true;
  context.input_ids = {{2, 5, 7}, {}};
  CHECK(json::parse(encode_reply(context, published()))["prompts"][0]["input_ids"] == json({2, 5, 7}));
}

TEST_CASE("metrics come in Prometheus' format, family by family") {
  Metrics metrics;
  metrics.add("gemmad_requests_total{op=\"encode\"}");
  metrics.add("gemmad_requests_total{op=\"encode\"}", 2);
  metrics.add("gemmad_requests_total{op=\"info\"}");
  metrics.set("gemmad_clients", 4);
  const std::string text = metrics.text();
  CHECK(text.find("# TYPE gemmad_requests_total counter\ngemmad_requests_total{op=\"encode\"} 3\n"
                  "gemmad_requests_total{op=\"info\"} 1\n") != std::string::npos);
  CHECK(text.find("# TYPE gemmad_clients gauge\ngemmad_clients 4\n") != std::string::npos);
  CHECK(text.find("gemmad_tokens_total") == std::string::npos);
}

}  // namespace
}  // namespace gemmad
