#include "daemon/protocol.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "config/config_error.h"
#include "config/strict_json.h"
#include "daemon/json_fields.h"
#include "daemon/protocol_enhance.h"
#include "daemon/protocol_fields.h"

namespace gemmad {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxIdBytes = 128;
constexpr std::int64_t kMaxRank = 9999;
constexpr std::int64_t kMaxListItems = std::int64_t{1} << 20;

/// Text, where nothing turns it into ids.
[[noreturn]] void refuse_text() {
  throw RefusedField("no_tokenizer",
                     "this daemon has no tokenizer: its model was made without files; send input_ids");
}

const json& prompt_list(const json& value, std::string_view what, const ProtocolLimits& limits) {
  if (value.is_array() && static_cast<std::int64_t>(value.size()) > limits.max_prompts) {
    // Its own code, so that clients can split it.
    throw RefusedField("too_many_prompts", std::string(what) + " has " + std::to_string(value.size()) +
                                               " items; a request may have " +
                                               std::to_string(limits.max_prompts) +
                                               " (max_prompts): split it");
  }
  return to_array(value, what, limits.max_prompts);
}

PromptInput parse_prompt(const json& value, const std::string& what, const ProtocolLimits& limits) {
  if (value.is_string() && !limits.takes_text) refuse_text();
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) throw FieldError(what + " is neither a string nor {\"input_ids\": [...]}");
  JsonFields fields(value, what);
  const std::string ids_name = what + ".input_ids";
  const json& list = to_array(fields.need("input_ids"), ids_name, kMaxListItems);
  fields.expect_no_others();
  std::vector<std::int64_t> ids;
  ids.reserve(list.size());
  for (const json& id : list) {
    ids.push_back(to_integer(id, ids_name, std::numeric_limits<std::int64_t>::min(),
                             std::numeric_limits<std::int64_t>::max()));
  }
  return ids;
}

/// One word of `outputs`. Returns whether it was "hidden_states".
bool parse_output(const json& output, const ProtocolLimits& limits, OutputSelection& selection) {
  if (!output.is_string()) throw FieldError("an item of 'outputs' is not a string");
  if (output == "hidden_states") return true;
  if (output == "last_hidden_state") {
    selection.last_hidden_state = true;
    return false;
  }
  const std::string word = output.get<std::string>().substr(0, 64);
  if (output != "features" && output != "embeddings") {
    throw FieldError("unknown output '" + word +
                     "'; known are 'hidden_states', 'last_hidden_state', 'features', 'embeddings'");
  }
  if (!limits.has_processor) {
    throw FieldError("output '" + word +
                     "' takes an embeddings processor, which this daemon has not: name one with "
                     "embeddings_processor in its config");
  }
  (output == "features" ? selection.features : selection.embeddings) = true;
  return false;
}

void parse_layers(const json& layers, const ProtocolLimits& limits, std::vector<std::int64_t>& states) {
  for (const json& layer : to_array(layers, "field 'layers'", kMaxListItems))
    states.push_back(to_integer(layer, "an item of 'layers'", 0, limits.num_layers));
  if (states.empty()) throw FieldError("field 'layers' is empty: leave it out for all layers");
  std::sort(states.begin(), states.end());
  states.erase(std::unique(states.begin(), states.end()), states.end());
}

void parse_modalities(const json& modalities, OutputSelection& selection) {
  selection.modalities = {false, false};
  for (const json& modality : to_array(modalities, "field 'modalities'", 2)) {
    if (modality != "video" && modality != "audio")
      throw FieldError("an item of 'modalities' is neither 'video' nor 'audio'");
    selection.modalities[modality == "video" ? 0 : 1] = true;
  }
  if (!selection.modalities[0] && !selection.modalities[1])
    throw FieldError("field 'modalities' is empty: leave it out for both");
}

OutputSelection parse_outputs(JsonFields& fields, const ProtocolLimits& limits) {
  OutputSelection selection;
  bool hidden_states = true;
  if (const json* outputs = fields.find("outputs")) {
    hidden_states = false;
    if (to_array(*outputs, "field 'outputs'", 16).empty())
      throw FieldError("field 'outputs' is empty: nothing to compute");
    for (const json& output : *outputs)
      hidden_states = parse_output(output, limits, selection) || hidden_states;
  }
  if (const json* layers = fields.find("layers")) {
    if (!hidden_states)
      throw FieldError("field 'layers' chooses among 'hidden_states', which 'outputs' does not name");
    parse_layers(*layers, limits, selection.hidden_states);
  } else if (hidden_states) {
    selection.hidden_states.resize(static_cast<std::size_t>(limits.num_layers) + 1);
    std::iota(selection.hidden_states.begin(), selection.hidden_states.end(), std::int64_t{0});
  }
  if (const json* modalities = fields.find("modalities")) {
    if (!selection.needs_processor())
      throw FieldError("field 'modalities' chooses of 'features' and 'embeddings'; 'outputs' names neither");
    parse_modalities(*modalities, selection);
  }
  return selection;
}

Preference parse_preference(const json& value) {
  if (value == "deal") return Preference::kDeal;
  if (value == "split") return Preference::kSplit;
  throw FieldError("field 'prefer' must be 'deal' or 'split'");
}

Command parse_encode(JsonFields& fields, const ProtocolLimits& limits) {
  EncodeRequest request;
  const json& prompts = prompt_list(fields.need("prompts"), "field 'prompts'", limits);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    request.prompts.push_back(parse_prompt(prompts[i], "prompts[" + std::to_string(i) + "]", limits));
  }
  request.outputs = parse_outputs(fields, limits);
  request.name = parse_name(fields);
  request.deadline_ms = parse_deadline(fields, limits);
  if (const json* prefer = fields.find("prefer")) request.prefer = parse_preference(*prefer);
  request.readers = parse_readers(fields);
  request.is_alone = fields.boolean("alone", false);
  request.return_input_ids = fields.boolean("return_input_ids", false);
  if (const json* enhance = fields.find("enhance")) request.enhance = parse_enhance_field(*enhance, limits);
  if (request.enhance &&
      (request.prompts.empty() || !std::holds_alternative<std::string>(request.prompts[0])))
    throw FieldError("field 'enhance' rewrites the first prompt, which must be text");
  return request;
}

Command parse_tokenize(JsonFields& fields, const ProtocolLimits& limits) {
  TokenizeRequest request;
  if (!limits.takes_text) refuse_text();
  for (const json& text : prompt_list(fields.need("texts"), "field 'texts'", limits)) {
    if (!text.is_string()) throw FieldError("an item of 'texts' is not a string");
    request.texts.push_back(text.get<std::string>());
  }
  request.as_prompts = fields.boolean("as_prompts", false);
  return request;
}

RequestId parse_id(const json& value) {
  const bool simple = value.is_number_integer() || value.is_string();
  const RequestId id = simple ? value.dump() : "";
  if (!simple || id.size() > kMaxIdBytes) {
    throw FieldError("field 'id' must be a whole number or a string of at most " +
                     std::to_string(kMaxIdBytes - 2) + " bytes");
  }
  return id;
}

Command parse_cancel(JsonFields& fields, const ProtocolLimits&) {
  CancelRequest request;
  if (const json* job = fields.find("job")) {
    request.job =
        static_cast<JobId>(to_integer(*job, "field 'job'", 1, std::numeric_limits<std::int64_t>::max()));
  }
  if (fields.find("name") != nullptr) request.name = fields.text("name", kMaxNameBytes);
  if (const json* id = fields.find("request")) request.request = parse_id(*id);
  if (request.job.has_value() + request.name.has_value() + request.request.has_value() != 1) {
    throw FieldError("exactly one of the fields 'job', 'name', 'request' says what to cancel");
  }
  return request;
}

Command parse_switch(JsonFields& fields, const ProtocolLimits&) {
  SwitchRequest request;
  if (fields.find("mode") != nullptr) request.mode = fields.text("mode", kMaxNameBytes);
  if (fields.find("strategy") != nullptr) request.strategy = fields.text("strategy", kMaxNameBytes);
  if (const json* ranks = fields.find("ranks_per_replica"))
    request.ranks_per_replica = to_integer(*ranks, "field 'ranks_per_replica'", 0, kMaxRank);
  if (const json* ranks = fields.find("encoder_ranks")) {
    request.encoder_ranks.emplace();
    for (const json& rank : to_array(*ranks, "field 'encoder_ranks'", kMaxRank + 1))
      request.encoder_ranks->push_back(to_integer(rank, "an item of 'encoder_ranks'", 0, kMaxRank));
  }
  if (!request.mode && !request.strategy && !request.ranks_per_replica && !request.encoder_ranks) {
    throw FieldError(
        "at least one of the fields 'mode', 'strategy', 'ranks_per_replica', 'encoder_ranks' says what to "
        "switch to");
  }
  return request;
}

template <EnhanceRequest (*parse)(JsonFields&, const ProtocolLimits&)>
Command as_command(JsonFields& fields, const ProtocolLimits& limits) {
  return parse(fields, limits);
}

template <typename Plain>
Command parse_plain(JsonFields&, const ProtocolLimits&) {
  return Plain{};
}

struct OpRow {
  std::string_view op;
  Command (*parse)(JsonFields&, const ProtocolLimits&);
  std::string_view help;
};

constexpr std::array kOps = {
    OpRow{
        "encode", parse_encode,
        "prompts: [text or {\"input_ids\": [...]}], outputs: some of \"hidden_states\", "
        "\"last_hidden_state\", \"features\", \"embeddings\", layers: [0, 8], modalities: [\"video\"], "
        "name, deadline_ms, prefer: \"deal\" or \"split\", readers, alone (beside no other request, nothing "
        "of an earlier one: the same bytes every time), return_input_ids, enhance: true or {options and "
        "image of the two below}: the first prompt is rewritten before"},
    OpRow{
        "enhance_t2v", as_command<parse_enhance_t2v>,
        "prompt: text that the model rewrites, system_prompt, max_new_tokens, seed, temperature, top_k, "
        "top_p, greedy, no_repeat_ngram, clean: false leaves the text as generated, guard: false lets it go "
        "in circles, stream: true sends events before the reply, name, readers, deadline_ms"},
    OpRow{"enhance_i2v", as_command<parse_enhance_i2v>,
          "the same, and image: {\"shape\": [height, width, 3], \"data\": base64 of RGB} or {\"file\": "
          "base64 of a PNG or JPEG}"},
    OpRow{"tokenize", parse_tokenize, "texts: [text], as_prompts: strip, one BOS and cut, as encode does"},
    OpRow{"info", parse_plain<InfoRequest>, "what is loaded and how"},
    OpRow{"health", parse_plain<HealthRequest>, "what rank 0 last heard of every rank, and when"},
    OpRow{"metrics", parse_plain<MetricsRequest>, "counters in Prometheus' text format"},
    OpRow{
        "cancel", parse_cancel,
        "one of job, name, request (an id on this connection): gives up a waiting encode, or an enhancement "
        "at any time"},
    OpRow{"switch", parse_switch,
          "mode, strategy, ranks_per_replica, encoder_ranks, as in the config: lays the model out anew"},
    OpRow{"sleep", parse_plain<SleepRequest>, "give the device's memory back until the next encode"},
    OpRow{"wake", parse_plain<WakeRequest>, "take it again"},
    OpRow{"shutdown", parse_plain<ShutdownRequest>, "finish what waits, then stop"},
};

std::string known_ops() {
  std::string names;
  for (const OpRow& row : kOps)
    names += (names.empty() ? "" : ", ") + std::string(row.op);
  return names;
}

Request parse_fields(const json& object, const RequestId& id, const ProtocolLimits& limits) {
  JsonFields fields(object);
  fields.need("id");
  const json& op = fields.need("op");
  if (!op.is_string()) throw FieldError("field 'op' is not a string");
  for (const OpRow& row : kOps) {
    if (op != row.op) continue;
    Request request{id, row.op, row.parse(fields, limits)};
    fields.expect_no_others();
    return request;
  }
  throw ProtocolError(id, "unknown_op",
                      "unknown op '" + op.get<std::string>().substr(0, 64) + "'; known are " + known_ops());
}

}  // namespace

Request parse_request(std::string_view line, const ProtocolLimits& limits) {
  RequestId id = "null";
  try {
    const json object = parse_strict_json(line, "request", limits.max_line_bytes);
    if (!object.is_object()) throw FieldError("a request is a JSON object");
    const auto id_field = object.find("id");
    if (id_field != object.end()) id = parse_id(*id_field);
    return parse_fields(object, id, limits);
  } catch (const ConfigError& error) {
    throw ProtocolError(id, "bad_request", error.what());
  } catch (const RefusedField& error) {
    throw ProtocolError(id, error.code(), error.what());
  } catch (const FieldError& error) {
    throw ProtocolError(id, "bad_request", error.what());
  }
}

std::string protocol_help() {
  std::string help;
  for (const OpRow& row : kOps) {
    help += "  " + std::string(row.op) + std::string(13 - row.op.size(), ' ') + std::string(row.help) + "\n";
  }
  return help;
}

}  // namespace gemmad
