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
  job.outcome.cut = Cut::kSplit;
  job.outcome.size_bytes = 1280;
  job.queue_ms = 1.23456;
  job.busy_ms = 7.5;
  return job;
}

/// Two ranks, of which one holds a slice of a model of 8 layers and the other receives.
DaemonFacts facts() {
  DaemonFacts facts;
  facts.config.mode = Mode::kAdaptive;
  facts.config.strategy = Strategy::kLayer;
  facts.config.ranks_per_replica = 2;
  facts.config.encoder_ranks = {0, 2};
  facts.model = TextConfig{};
  facts.model.num_layers = 8;
  facts.model.hidden_size = 96;
  facts.model.intermediate_size = 192;
  facts.model.num_heads = 4;
  facts.model.num_kv_heads = 2;
  facts.model.head_dim = 64;
  facts.ranks.resize(2);
  facts.ranks[0].host = fixed_text<64>("alpha");
  facts.ranks[0].reader_socket = fixed_text<128>("/s.reader-0");
  facts.ranks[0].shard = {0, {0, 8}, {0, 2}, {0, 1}, {0, 48}};  // blocks of two columns
  facts.ranks[0].weight_bytes = 1000;
  facts.ranks[0].replicated_bytes = 100;
  facts.ranks[0].workspace_bytes = 50;
  facts.ranks[0].processor_bytes = 60;
  facts.ranks[0].sum_bytes = 20;
  facts.ranks[0].delivery_bytes = 30;
  facts.ranks[0].scratch_bytes = 40;
  facts.ranks[0].generation_bytes = 80;
  facts.ranks[0].device_free_bytes = 5000;
  facts.ranks[0].device_total_bytes = 9000;
  facts.ranks[0].disk_bytes = 7;
  facts.ranks[1].shard.rank = -1;
  facts.asleep = true;
  facts.costs = CostTable{{16, 128, 512}, {1, 2, 3}, {4, 5, 6}};
  return facts;
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
  CHECK(reply["ms"]["busy"] == 7.5);
  CHECK(reply["cut"] == "split");
  CHECK(reply["bytes"] == 1280);
}

TEST_CASE("a failed encode's reply is an error reply") {
  CompletedJob job;
  job.outcome.failure = {"deadline", "too late"};
  const json reply = json::parse(encode_reply({"5", "", false, {}, {}, {}}, job));
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

EnhancementOutcome enhanced() {
  EnhancementOutcome outcome;
  outcome.id = 4;
  outcome.ok = true;
  outcome.text = "A dog";
  outcome.raw_text = "\"A dog\xe2";  // cut inside a character
  outcome.stop = StopReason::kEnd;
  outcome.tokens_in = 30;
  outcome.tokens_out = 3;
  outcome.decode_ms = 50;
  return outcome;
}

TEST_CASE("an encode reply tells of the prompt that was rewritten, where one was") {
  EncodeContext context;
  context.id = "1";
  CHECK_FALSE(json::parse(encode_reply(context, published())).contains("enhanced"));
  context.enhanced = enhanced_object(enhanced());
  const json reply = json::parse(encode_reply(context, published()));
  CHECK(reply["enhanced"]["text"] == "A dog");
  CHECK(reply["enhanced"]["job"] == 4);
  CHECK(reply["job"] == 9);
  CHECK(reply["prompts"].size() == 2);
}

TEST_CASE("an enhancement's reply is JSON whatever was generated") {
  const json reply = json::parse(enhance_reply({"1", "", {}}, enhanced()));
  CHECK(reply["ok"] == true);
  CHECK(reply["tokens_per_s"] == 40.0);
  CHECK(reply["stop"] == "end");
  CHECK_FALSE(reply.contains("name"));
  EnhancementOutcome single = enhanced();
  single.tokens_out = 1;
  single.decode_ms = 0;
  CHECK(json::parse(enhance_reply({"1", "n", {}}, single))["tokens_per_s"] == 0);
}

TEST_CASE("a token event may have tokens without text") {
  CHECK(token_event("\"a\"", {1, {5, 6}, "x\n"}) == R"({"id":"a","event":"token","text":"x\n","ids":[5,6]})");
  CHECK(token_event("1", {1, {5}, ""}) == R"({"id":1,"event":"token","text":"","ids":[5]})");
}

TEST_CASE("an order that was carried out is answered with how things stand now") {
  const json reply = json::parse(order_reply("3", {true, "", "", 12.3456}, facts()));
  CHECK(reply == json({{"id", 3},
                       {"ok", true},
                       {"mode", "adaptive"},
                       {"strategy", "layer"},
                       {"ranks_per_replica", 2},
                       {"encoder_ranks", {0, 2}},
                       {"asleep", true},
                       {"ms", 12.346}}));
}

TEST_CASE("an order that changed nothing is answered with the reason") {
  const json reply = json::parse(order_reply("3", {false, "cannot_switch", "why", 1}, facts()));
  CHECK(reply["ok"] == false);
  CHECK(reply["error"] == json({{"code", "cannot_switch"}, {"message", "why"}}));
}

TEST_CASE("info tells what every rank holds, and nothing of one that only receives") {
  const json info = info_fields(facts());
  REQUIRE(info["ranks"].size() == 2);
  const json& first = info["ranks"][0];
  CHECK(first["rank"] == 0);
  CHECK(first["host"] == "alpha");
  CHECK(first["reader_socket"] == "/s.reader-0");
  CHECK(first["shard"] ==
        json({{"layers", {0, 8}}, {"heads", {0, 2}}, {"kv_heads", {0, 1}}, {"ffn_columns", {0, 96}}}));
  CHECK(first["bytes"] == json({{"weights", 1000},
                                {"replicated", 100},
                                {"workspace", 50},
                                {"processor", 60},
                                {"sums", 20},
                                {"delivery", 30},
                                {"scratch", 40},
                                {"generation", 80},
                                {"device_free", 5000},
                                {"device_total", 9000},
                                {"read_from_disk", 7}}));
  CHECK(info["ranks"][1]["shard"] == nullptr);
  CHECK(info["ranks"][1]["publisher"] == 0);
}

TEST_CASE("info tells mode, model, costs and settings") {
  const json info = info_fields(facts());
  CHECK(info["mode"] == "adaptive");
  CHECK(info["asleep"] == true);
  CHECK(info["model"]["num_layers"] == 8);
  CHECK(info["model"]["layer_elements"] == shard_size(facts().model, whole_model(facts().model, 0)).elements);
  CHECK(info["costs"]["tokens"] == json({16, 128, 512}));
  CHECK(info["costs"]["split_ms"] == json({4.0, 5.0, 6.0}));
  CHECK(info["config"] == effective_config(facts().config));
  DaemonFacts without = facts();
  without.costs.reset();
  CHECK(info_fields(without)["costs"] == nullptr);
}

TEST_CASE("info tells what rewrites prompts, or that nothing does") {
  DaemonFacts now = facts();
  CHECK(info_fields(now)["enhance"] == nullptr);
  now.enhancer = EnhancerFacts{"/m", "gemma3", 100, true};
  const json enhance = info_fields(now)["enhance"];
  CHECK(enhance["model"] == "/m");
  CHECK(enhance["type"] == "gemma3");
  CHECK(enhance["vision"] == true);
  CHECK(enhance["slots"] == 4);
  CHECK(enhance["context"] == 4096);
}

TEST_CASE("health and metrics tell how many prompts wait to be rewritten and how many are") {
  LiveState state;
  state.num_enhancements_waiting = 2;
  state.num_enhancements_running = 3;
  CHECK(health_fields(facts(), state)["enhancements"] == json({{"waiting", 2}, {"running", 3}}));
  Metrics metrics;
  set_gauges(metrics, facts(), state);
  CHECK(metrics.text().find("gemmad_enhancements_waiting 2\n") != std::string::npos);
  CHECK(metrics.text().find("gemmad_enhancements_running 3\n") != std::string::npos);
}

TEST_CASE("info tells where the weights come from, and of made ones how to make them again") {
  DaemonFacts now = facts();
  const json read = info_fields(now)["model"];
  CHECK(read["weights"] == "files");
  CHECK(read["tokenizer"] == true);
  CHECK_FALSE(read.contains("weights_seed"));
  now.config.weights = Weights::kRandom;
  now.config.weights_seed = 9;
  now.config.preset = Preset::kGemma3_12b;
  now.has_tokenizer = false;
  const json made = info_fields(now)["model"];
  CHECK(made["weights"] == "random");
  CHECK(made["weights_seed"] == 9);
  CHECK(made["preset"] == "gemma-3-12b");
  CHECK(made["tokenizer"] == false);
}

TEST_CASE("health tells whether ranks encode, sleep or idle") {
  const auto state_of = [](bool asleep, bool encoding) {
    DaemonFacts now = facts();
    now.asleep = asleep;
    LiveState state;
    state.ranks.ranks.resize(2);
    state.ranks.ranks[1].tokens = 9;
    state.ranks.encoding = encoding;
    const json health = health_fields(now, state);
    CHECK(health["ranks"].size() == 2);
    CHECK(health["ranks"][1]["tokens"] == 9);
    return health["ranks"][1]["state"].get<std::string>();
  };
  CHECK(state_of(false, false) == "idle");
  CHECK(state_of(true, false) == "asleep");
  CHECK(state_of(false, true) == "encoding");
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
