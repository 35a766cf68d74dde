#include "daemon/replies.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <span>

namespace gemmad {

namespace {

using nlohmann::json;

/// Text from outside may be cut inside a character: such bytes are replaced rather than refused.
std::string dumped(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

double milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

/// A figure for people: three decimals.
double rounded(double value) {
  return static_cast<double>(static_cast<std::int64_t>(value * 1000 + 0.5)) / 1000;
}

// An encode's reply names every tensor of every prompt, hundreds of them: it is written straight to text, as
// a json value takes a dozen allocations for each.

void append(std::string& line, std::int64_t number) {
  std::array<char, 24> digits;
  line.append(digits.data(), std::to_chars(digits.begin(), digits.end(), number).ptr);
}

template <typename Number>
void append_list(std::string& line, std::span<const Number> numbers) {
  line += '[';
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) line += ',';
    append(line, numbers[i]);
  }
  line += ']';
}

/// Its name is of gemmad's own making: there is nothing to escape.
void append_tensor(std::string& line, const TensorInfo& tensor) {
  line += R"({"name":")";
  line += tensor.name;
  line += R"(","dtype":")";
  line += name(tensor.dtype);
  line += R"(","shape":)";
  append_list(line, tensor.shape.extents());
  line += '}';
}

/// Up to its last field, so that more can follow.
void append_open_prompt(std::string& line, const PromptResult& prompt) {
  if (!prompt.ok) {
    const json error = {{"code", prompt.error_code}, {"message", prompt.error_message}};
    line += R"({"status":"error","error":)" + dumped(error);
    return;
  }
  line += R"({"status":"ok","tokens":)";
  append(line, prompt.num_tokens);
  line += R"(,"padded_length":)";
  append(line, prompt.padded_length);
  line += prompt.truncated ? R"(,"truncated":true,"tensors":[)" : R"(,"truncated":false,"tensors":[)";
  for (std::size_t i = 0; i < prompt.tensors.size(); ++i) {
    if (i > 0) line += ',';
    append_tensor(line, prompt.tensors[i]);
  }
  line += ']';
}

void append_prompts(std::string& line, const std::vector<PromptResult>& prompts,
                    const EncodeContext& context) {
  line += '[';
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (i > 0) line += ',';
    append_open_prompt(line, prompts[i]);
    if (context.return_input_ids) {
      line += R"(,"input_ids":)";
      append_list(line, std::span<const std::int32_t>(context.input_ids[i]));
    }
    line += '}';
  }
  line += ']';
}

}  // namespace

std::string ok_reply(const RequestId& id, const json& fields) {
  // The id leads, as a reader of logs expects; it is JSON text already.
  std::string line = "{\"id\":" + id + ",\"ok\":true";
  const std::string rest = dumped(fields);
  if (rest.size() > 2) line += "," + rest.substr(1, rest.size() - 2);
  return line + "}";
}

std::string error_reply(const RequestId& id, const std::string& code, const std::string& message) {
  const json error = {{"code", code}, {"message", message}};
  return "{\"id\":" + id + ",\"ok\":false,\"error\":" + dumped(error) + "}";
}

std::string encode_reply(const EncodeContext& context, const CompletedJob& job) {
  if (job.outcome.kind != JobOutcome::Kind::kPublished) {
    return error_reply(context.id, job.outcome.failure.code, job.outcome.failure.message);
  }
  json fields = {{"job", job.id},
                 {"cut", job.outcome.cut == Cut::kSplit ? "split" : "deal"},
                 {"bytes", job.outcome.size_bytes},
                 {"ms",
                  {{"queue", rounded(job.queue_ms)},
                   {"compute", rounded(job.compute_ms)},
                   {"busy", rounded(job.busy_ms)},
                   {"deliver", rounded(job.deliver_ms)},
                   {"total", rounded(milliseconds(Clock::now() - context.submitted))}}}};
  if (!context.name.empty()) fields["name"] = context.name;
  std::string line = ok_reply(context.id, fields);
  line.back() = ',';  // its closing brace
  if (!context.enhanced.empty()) line += R"("enhanced":)" + context.enhanced + ',';
  line += R"("prompts":)";
  append_prompts(line, job.outcome.prompts, context);
  return line + "}";
}

std::string token_event(const RequestId& id, const GeneratedPiece& piece) {
  std::string line = "{\"id\":" + id + R"(,"event":"token","text":)" + dumped(piece.text) + R"(,"ids":)";
  append_list(line, std::span<const std::int32_t>(piece.ids));
  return line + "}";
}

namespace {

json enhanced_fields(const EnhancementOutcome& outcome) {
  // From the first token to the last one there is one step less than there are tokens.
  const double steps = static_cast<double>(outcome.tokens_out - 1);
  const double tokens_per_s = outcome.decode_ms > 0 && steps > 0 ? steps * 1000 / outcome.decode_ms : 0;
  return {{"job", outcome.id},
          {"text", outcome.text},
          {"raw_text", outcome.raw_text},
          {"tokens_in", outcome.tokens_in},
          {"tokens_out", outcome.tokens_out},
          {"tokens_per_s", rounded(tokens_per_s)},
          {"stop", name(outcome.stop)},
          {"ms",
           {{"queue", rounded(outcome.queue_ms)},
            {"prefill", rounded(outcome.prefill_ms)},
            {"decode", rounded(outcome.decode_ms)}}}};
}

}  // namespace

std::string enhanced_object(const EnhancementOutcome& outcome) {
  return dumped(enhanced_fields(outcome));
}

std::string enhance_reply(const EnhanceContext& context, const EnhancementOutcome& outcome) {
  json fields = enhanced_fields(outcome);
  fields["ms"]["total"] = rounded(milliseconds(Clock::now() - context.submitted));
  if (!context.name.empty()) fields["name"] = context.name;
  return ok_reply(context.id, fields);
}

namespace {

json range(const Range& r) {
  return {r.begin, r.end};
}

/// What a rank holds: null where that is nothing.
json shard_fields(const Shard& shard, const TextConfig& model) {
  if (shard.rank < 0) return nullptr;
  const std::int64_t block = ffn_block(model);
  return {{"layers", range(shard.layers)},
          {"heads", range(shard.heads)},
          {"kv_heads", range(shard.kv_heads)},
          {"ffn_columns", range({shard.ffn_blocks.begin * block, shard.ffn_blocks.end * block})}};
}

json cost_fields(const std::optional<CostTable>& costs) {
  if (!costs) return nullptr;
  return {{"tokens", costs->tokens}, {"whole_ms", costs->whole_ms}, {"split_ms", costs->split_ms}};
}

/// What is loaded. Of a made model also what makes the same one again.
json model_fields(const DaemonFacts& facts) {
  const TextConfig& model = facts.model;
  json fields = {{"path", facts.config.model},
                 {"weights", name(facts.config.weights)},
                 {"tokenizer", facts.has_tokenizer},
                 {"type", model.model_type},
                 {"num_layers", model.num_layers},
                 {"hidden_size", model.hidden_size},
                 {"vocab_size", model.vocab_size},
                 {"layer_elements", shard_size(model, whole_model(model, 0)).elements}};
  if (facts.config.weights == Weights::kRandom) {
    fields["weights_seed"] = facts.config.weights_seed;
    fields["preset"] = name(facts.config.preset);
  }
  return fields;
}

std::vector<std::string> output_names(const DaemonFacts& facts) {
  if (!facts.processor) return {"hidden_states", "last_hidden_state"};
  return {"hidden_states", "last_hidden_state", "features", "embeddings"};
}

/// Null where there is none.
json processor_fields(const DaemonFacts& facts) {
  if (!facts.processor) return nullptr;
  const ProcessorConfig& processor = *facts.processor;
  return {{"path", facts.config.embeddings_processor},
          {"preset", name(facts.config.processor_preset)},
          {"variant", processor.variant == ProcessorVariant::kV1 ? "v1" : "v2"},
          {"video_width", processor.video.width()},
          {"audio_width", processor.audio.width()},
          {"sequence_length", kPaddedLength}};
}

/// Null where prompts are not rewritten.
json enhance_fields(const DaemonFacts& facts) {
  if (!facts.enhancer) return nullptr;
  return {{"model", facts.enhancer->model},       {"type", facts.enhancer->type},
          {"vision", facts.enhancer->has_vision}, {"rank", facts.config.enhance_rank},
          {"slots", facts.config.enhance_slots},  {"context", facts.config.enhance_context},
          {"queue", facts.config.enhance_queue},  {"idle_ms", facts.config.enhance_idle_ms}};
}

json mode_fields(const DaemonFacts& facts) {
  return {{"mode", name(facts.config.mode)},
          {"strategy", name(facts.config.strategy)},
          {"ranks_per_replica", facts.config.ranks_per_replica},
          {"encoder_ranks", facts.config.encoder_ranks},
          {"asleep", facts.asleep}};
}

}  // namespace

std::string order_reply(const RequestId& id, const OrderOutcome& outcome, const DaemonFacts& facts) {
  if (!outcome.done) return error_reply(id, outcome.code, outcome.message);
  json fields = mode_fields(facts);
  fields["ms"] = rounded(outcome.ms);
  return ok_reply(id, fields);
}

json info_fields(const DaemonFacts& facts) {
  json ranks = json::array();
  for (std::size_t rank = 0; rank < facts.ranks.size(); ++rank) {
    const RankIdentity& identity = facts.ranks[rank];
    ranks.push_back({{"rank", rank},
                     {"node", identity.node},
                     {"host", identity.host.data()},
                     {"pid", identity.pid},
                     {"device", identity.device.data()},
                     {"reader_socket", identity.reader_socket.data()},
                     {"publisher", identity.publisher},
                     {"shard", shard_fields(identity.shard, facts.model)},
                     {"bytes",
                      {{"weights", identity.weight_bytes},
                       {"replicated", identity.replicated_bytes},
                       {"workspace", identity.workspace_bytes},
                       {"processor", identity.processor_bytes},
                       {"sums", identity.sum_bytes},
                       {"delivery", identity.delivery_bytes},
                       {"scratch", identity.scratch_bytes},
                       {"generation", identity.generation_bytes},
                       {"device_free", identity.device_free_bytes},
                       {"device_total", identity.device_total_bytes},
                       {"read_from_disk", identity.disk_bytes}}}});
  }
  json fields = mode_fields(facts);
  fields.update({{"version", GEMMAD_VERSION},
                 {"costs", cost_fields(facts.costs)},
                 {"collectives", facts.collectives},
                 {"model", model_fields(facts)},
                 {"outputs", output_names(facts)},
                 {"embeddings_processor", processor_fields(facts)},
                 {"enhance", enhance_fields(facts)},
                 {"ranks", std::move(ranks)},
                 {"config", effective_config(facts.config)}});
  return fields;
}

json health_fields(const DaemonFacts& facts, const LiveState& state) {
  json ranks = json::array();
  for (std::size_t rank = 0; rank < state.ranks.ranks.size(); ++rank) {
    const RankStatus& status = state.ranks.ranks[rank];
    ranks.push_back({{"rank", rank},
                     {"state", state.ranks.encoding ? "encoding"
                               : facts.asleep       ? "asleep"
                                                    : "idle"},
                     {"heard_ms_ago", rounded(milliseconds(Clock::now() - state.ranks.heard_at))},
                     {"tokens", status.tokens},
                     {"rss_bytes", status.rss_bytes},
                     {"segment",
                      {{"bytes", status.segment_bytes},
                       {"used_bytes", status.used_bytes},
                       {"leased_bytes", status.leased_bytes},
                       {"kept_bytes", status.kept_bytes},
                       {"results", status.num_results},
                       {"leases", status.num_leases}}}});
  }
  return {{"status", state.draining ? "draining" : "ok"},
          {"uptime_s", rounded(milliseconds(Clock::now() - facts.ready_at) / 1000)},
          {"queue", {{"waiting", state.num_waiting}, {"running", state.num_running}}},
          {"enhancements",
           {{"waiting", state.num_enhancements_waiting}, {"running", state.num_enhancements_running}}},
          {"clients", state.num_clients},
          {"ranks", std::move(ranks)}};
}

void set_gauges(Metrics& metrics, const DaemonFacts& facts, const LiveState& state) {
  metrics.set("gemmad_clients", static_cast<double>(state.num_clients));
  metrics.set("gemmad_jobs_waiting", static_cast<double>(state.num_waiting));
  metrics.set("gemmad_jobs_running", static_cast<double>(state.num_running));
  metrics.set("gemmad_enhancements_waiting", static_cast<double>(state.num_enhancements_waiting));
  metrics.set("gemmad_enhancements_running", static_cast<double>(state.num_enhancements_running));
  metrics.set("gemmad_asleep", facts.asleep ? 1 : 0);
  metrics.set("gemmad_uptime_seconds", milliseconds(Clock::now() - facts.ready_at) / 1000);
  for (std::size_t rank = 0; rank < state.ranks.ranks.size(); ++rank) {
    const RankStatus& status = state.ranks.ranks[rank];
    const std::string label = "{rank=\"" + std::to_string(rank) + "\"}";
    metrics.set("gemmad_segment_bytes" + label, static_cast<double>(status.segment_bytes));
    metrics.set("gemmad_segment_used_bytes" + label, static_cast<double>(status.used_bytes));
    metrics.set("gemmad_segment_leased_bytes" + label, static_cast<double>(status.leased_bytes));
    metrics.set("gemmad_segment_kept_bytes" + label, static_cast<double>(status.kept_bytes));
  }
}

}  // namespace gemmad
