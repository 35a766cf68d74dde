#include "daemon/protocol.h"

#include "tests/support/catch.h"

namespace gemmad {
namespace {

ProtocolLimits limits() {
  ProtocolLimits limits;
  limits.max_line_bytes = 4096;
  limits.max_prompts = 3;
  limits.num_layers = 8;
  limits.has_processor = true;
  return limits;
}

Request parse(const std::string& line) {
  return parse_request(line, limits());
}
EncodeRequest parse_encode(const std::string& fields) {
  return std::get<EncodeRequest>(parse(R"({"id":1,"op":"encode",)" + fields + "}").command);
}

/// The code of the refusal, with the id that its reply would carry.
struct Refusal {
  std::string code;
  std::string id;
  std::string message;
};
Refusal refusal_of(const std::string& line) {
  try {
    parse(line);
  } catch (const ProtocolError& error) {
    return {error.code(), error.id(), error.what()};
  }
  return {"accepted", "", ""};
}

TEST_CASE("an encode asks for all hidden states unless it says otherwise") {
  const EncodeRequest request = parse_encode(R"("prompts":["a"])");
  CHECK(request.outputs.hidden_states == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8});
  CHECK_FALSE(request.outputs.last_hidden_state);
  CHECK_FALSE(request.outputs.needs_processor());
  CHECK_FALSE(request.deadline_ms.has_value());
  CHECK(request.name.empty());
  CHECK(request.prefer == Preference::kNone);
  CHECK(request.readers == 0);
}

TEST_CASE("without a tokenizer text is refused by a code of its own, and ids are taken") {
  ProtocolLimits no_text = limits();
  no_text.takes_text = false;
  const auto code_of = [&](const std::string& line) -> std::string {
    try {
      parse_request(line, no_text);
    } catch (const ProtocolError& error) {
      CHECK(std::string(error.what()).find("send input_ids") != std::string::npos);
      CHECK(error.id() == "1");
      return error.code();
    }
    return "accepted";
  };
  CHECK(code_of(R"({"id":1,"op":"encode","prompts":[{"input_ids":[2]},"a"]})") == "no_tokenizer");
  CHECK(code_of(R"({"id":1,"op":"tokenize","texts":["a"]})") == "no_tokenizer");
  CHECK(code_of(R"({"id":1,"op":"encode","prompts":[{"input_ids":[2]}]})") == "accepted");
}

TEST_CASE("an encode may prefer a cut and tell how many readers come") {
  CHECK(parse_encode(R"("prompts":[],"prefer":"deal")").prefer == Preference::kDeal);
  CHECK(parse_encode(R"("prompts":[],"prefer":"split")").prefer == Preference::kSplit);
  CHECK(parse_encode(R"("prompts":[],"readers":8)").readers == 8);
}

TEST_CASE("a switch names what changes and leaves the rest") {
  const auto parse_switch = [](const std::string& fields) {
    return std::get<SwitchRequest>(parse(R"({"id":1,"op":"switch",)" + fields + "}").command);
  };
  const SwitchRequest mode = parse_switch(R"("mode":"adaptive")");
  CHECK(mode.mode == "adaptive");
  CHECK_FALSE(mode.strategy.has_value());
  CHECK_FALSE(mode.ranks_per_replica.has_value());
  CHECK_FALSE(mode.encoder_ranks.has_value());
  const SwitchRequest all =
      parse_switch(R"("mode":"sharded","strategy":"layer","ranks_per_replica":0,"encoder_ranks":[0,3])");
  CHECK(all.strategy == "layer");
  CHECK(all.ranks_per_replica == 0);
  CHECK(all.encoder_ranks == std::vector<std::int64_t>{0, 3});
  CHECK(parse_switch(R"("encoder_ranks":[])").encoder_ranks->empty());
}

TEST_CASE("an encode takes text and ids side by side") {
  const EncodeRequest request = parse_encode(R"("prompts":["a",{"input_ids":[2,-7,9000000000]}])");
  REQUIRE(request.prompts.size() == 2);
  CHECK(std::get<std::string>(request.prompts[0]) == "a");
  CHECK(std::get<std::vector<std::int64_t>>(request.prompts[1]) ==
        std::vector<std::int64_t>{2, -7, 9'000'000'000});
}

TEST_CASE("an encode takes an empty list of prompts") {
  CHECK(parse_encode(R"("prompts":[])").prompts.empty());
}

TEST_CASE("layers come sorted and once") {
  CHECK(parse_encode(R"("prompts":[],"layers":[8,0,8])").outputs.hidden_states ==
        std::vector<std::int64_t>{0, 8});
}

TEST_CASE("last_hidden_state alone asks for no others") {
  const EncodeRequest request = parse_encode(R"("prompts":[],"outputs":["last_hidden_state"])");
  CHECK(request.outputs.last_hidden_state);
  CHECK(request.outputs.hidden_states.empty());
}

TEST_CASE("features and embeddings are of both modalities unless some are chosen") {
  const OutputSelection both = parse_encode(R"("prompts":[],"outputs":["embeddings"])").outputs;
  CHECK(both.embeddings);
  CHECK_FALSE(both.features);
  CHECK(both.hidden_states.empty());
  CHECK(both.wants(Modality::kVideo));
  CHECK(both.wants(Modality::kAudio));
  const OutputSelection video =
      parse_encode(R"("prompts":[],"outputs":["features"],"modalities":["video"])").outputs;
  CHECK(video.features);
  CHECK(video.wants(Modality::kVideo));
  CHECK_FALSE(video.wants(Modality::kAudio));
}

TEST_CASE("modalities that say nothing or choose of nothing are refused") {
  const auto encode = [](const std::string& fields) {
    return refusal_of(R"({"id":1,"op":"encode","prompts":[],)" + fields + "}").code;
  };
  CHECK(encode(R"("modalities":["video"])") == "bad_request");
  CHECK(encode(R"("outputs":["features"],"modalities":[])") == "bad_request");
  CHECK(encode(R"("outputs":["features"],"modalities":["smell"])") == "bad_request");
  CHECK(encode(R"("outputs":["features"],"modalities":[1])") == "bad_request");
}

TEST_CASE("what a processor makes is refused where there is none, with the way to one") {
  ProtocolLimits no_processor = limits();
  no_processor.has_processor = false;
  try {
    parse_request(R"({"id":1,"op":"encode","prompts":[],"outputs":["embeddings"]})", no_processor);
    FAIL("accepted");
  } catch (const ProtocolError& error) {
    CHECK(error.code() == "bad_request");
    CHECK(std::string(error.what()).find("embeddings_processor") != std::string::npos);
  }
}

TEST_CASE("ids are echoed as they came") {
  CHECK(parse(R"({"id":7,"op":"info"})").id == "7");
  CHECK(parse(R"({"id":-3,"op":"info"})").id == "-3");
  CHECK(parse(R"({"id":"a\"b","op":"info"})").id == R"("a\"b")");
}

TEST_CASE("every op of the help text parses") {
  CHECK(std::holds_alternative<InfoRequest>(parse(R"({"id":1,"op":"info"})").command));
  CHECK(std::holds_alternative<HealthRequest>(parse(R"({"id":1,"op":"health"})").command));
  CHECK(std::holds_alternative<MetricsRequest>(parse(R"({"id":1,"op":"metrics"})").command));
  CHECK(std::holds_alternative<ShutdownRequest>(parse(R"({"id":1,"op":"shutdown"})").command));
  CHECK(std::holds_alternative<TokenizeRequest>(parse(R"({"id":1,"op":"tokenize","texts":["a"]})").command));
  CHECK(std::holds_alternative<CancelRequest>(parse(R"({"id":1,"op":"cancel","name":"x"})").command));
  CHECK(std::holds_alternative<SwitchRequest>(parse(R"({"id":1,"op":"switch","mode":"x"})").command));
  CHECK(std::holds_alternative<SleepRequest>(parse(R"({"id":1,"op":"sleep"})").command));
  CHECK(std::holds_alternative<WakeRequest>(parse(R"({"id":1,"op":"wake"})").command));
  for (const char* op : {"encode", "enhance_t2v", "enhance_i2v", "tokenize", "info", "health", "metrics",
                         "cancel", "switch", "sleep", "wake", "shutdown"}) {
    CHECK(protocol_help().find(std::string("  ") + op + " ") != std::string::npos);
  }
}

TEST_CASE("a request tells its op") {
  CHECK(parse(R"({"id":1,"op":"cancel","job":4})").op == "cancel");
  CHECK(parse(R"({"id":1,"op":"encode","prompts":[]})").op == "encode");
}

TEST_CASE("cancel names its target in exactly one way") {
  CHECK(std::get<CancelRequest>(parse(R"({"id":1,"op":"cancel","request":"a"})").command).request ==
        R"("a")");
  CHECK(refusal_of(R"({"id":1,"op":"cancel"})").code == "bad_request");
  CHECK(refusal_of(R"({"id":1,"op":"cancel","job":1,"name":"x"})").code == "bad_request");
  CHECK(refusal_of(R"({"id":1,"op":"cancel","job":0})").code == "bad_request");
}

TEST_CASE("malformed lines are refused without an id") {
  for (const std::string line :
       {"", "{", "[]", "7", "null", "\"x\"", R"({"id":1,"op":"info"} x)", R"({"op":"info"})",
        R"({"id":null,"op":"info"})", R"({"id":1.5,"op":"info"})", R"({"id":[1],"op":"info"})",
        R"({"id":true,"op":"info"})", "{\"id\":1,\"op\":\"in\xff\"}", R"({"id":1,"id":1,"op":"info"})",
        "// x\n{}"}) {
    CAPTURE(line);
    const Refusal refusal = refusal_of(line);
    CHECK(refusal.code == "bad_request");
    CHECK(refusal.id == "null");
  }
}

TEST_CASE("malformed fields are refused under the request's id") {
  for (const std::string fields :
       {R"("op":7)",
        R"("op":"info","extra":1)",
        R"("op":"encode")",
        R"("op":"encode","prompts":"a")",
        R"("op":"encode","prompts":[7])",
        R"("op":"encode","prompts":[{}])",
        R"("op":"encode","prompts":[{"input_ids":"a"}])",
        R"("op":"encode","prompts":[{"input_ids":[1.5]}])",
        R"("op":"encode","prompts":[{"input_ids":[1],"x":1}])",
        R"("op":"encode","prompts":[],"outputs":[])",
        R"("op":"encode","prompts":[],"outputs":["pooled"])",
        R"("op":"encode","prompts":[],"outputs":[1])",
        R"("op":"encode","prompts":[],"layers":[9])",
        R"("op":"encode","prompts":[],"layers":[-1])",
        R"("op":"encode","prompts":[],"layers":[])",
        R"("op":"encode","prompts":[],"outputs":["last_hidden_state"],"layers":[1])",
        R"("op":"encode","prompts":[],"name":"")",
        R"("op":"encode","prompts":[],"name":7)",
        R"("op":"encode","prompts":[],"deadline_ms":0)",
        R"("op":"encode","prompts":[],"deadline_ms":18446744073709551615)",
        R"("op":"encode","prompts":[],"return_input_ids":1)",
        R"("op":"encode","prompts":[],"prefer":"both")",
        R"("op":"encode","prompts":[],"prefer":1)",
        R"("op":"encode","prompts":[],"readers":0)",
        R"("op":"encode","prompts":[],"readers":1.5)",
        R"("op":"switch")",
        R"("op":"switch","mode":"")",
        R"("op":"switch","mode":1)",
        R"("op":"switch","ranks_per_replica":-1)",
        R"("op":"switch","encoder_ranks":0)",
        R"("op":"switch","encoder_ranks":[-1])",
        R"("op":"switch","encoder_ranks":["0"])",
        R"("op":"switch","mode":"sharded","segment_mib":1)",
        R"("op":"sleep","now":true)",
        R"("op":"tokenize","texts":[1])"}) {
    CAPTURE(fields);
    const Refusal refusal = refusal_of(R"({"id":"r",)" + fields + "}");
    CHECK(refusal.code == "bad_request");
    CHECK(refusal.id == R"("r")");
  }
}

TEST_CASE("lone surrogate escapes are refused") {
  CHECK(refusal_of(R"({"id":1,"op":"encode","prompts":["\ud800"]})").code == "bad_request");
  CHECK(refusal_of(R"({"id":1,"op":"encode","prompts":["\udc00 x"]})").code == "bad_request");
}

TEST_CASE("NUL and control tokens are text like any other") {
  CHECK(std::get<std::string>(parse_encode(R"("prompts":["a\u0000b<end_of_turn>"])").prompts[0]) ==
        std::string("a\0b<end_of_turn>", 16));
}

TEST_CASE("an unknown op is refused by name with the known ones") {
  const Refusal refusal = refusal_of(R"({"id":1,"op":"explode"})");
  CHECK(refusal.code == "unknown_op");
  CHECK(refusal.message.find("explode") != std::string::npos);
  CHECK(refusal.message.find("encode") != std::string::npos);
}

TEST_CASE("more prompts than the limit are refused with both numbers") {
  const Refusal refusal = refusal_of(R"({"id":1,"op":"encode","prompts":["a","b","c","d"]})");
  CHECK(refusal.code == "too_many_prompts");
  CHECK(refusal.message.find("4 items") != std::string::npos);
  CHECK(refusal.message.find("may have 3") != std::string::npos);
}

TEST_CASE("a line over the limit is refused whatever it holds") {
  CHECK(refusal_of(R"({"id":1,"op":"info","x":")" + std::string(5000, 'x') + "\"}").code == "bad_request");
}

TEST_CASE("nesting without end is refused without recursion") {
  CHECK(refusal_of(R"({"id":1,"op":"encode","prompts":)" + std::string(2000, '[')).code == "bad_request");
}

}  // namespace
}  // namespace gemmad
