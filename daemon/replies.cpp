#include "daemon/replies.h"

#include <nlohmann/json.hpp>

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

json prompt_fields(const PromptResult& prompt) {
  if (!prompt.ok) {
    return {{"status", "error"}, {"error", {{"code", prompt.error_code}, {"message", prompt.error_message}}}};
  }
  json tensors = json::array();
  for (const TensorInfo& tensor : prompt.tensors) {
    tensors.push_back(
        {{"name", tensor.name}, {"dtype", name(tensor.dtype)}, {"shape", tensor.shape.extents()}});
  }
  return {{"status", "ok"},
          {"tokens", prompt.num_tokens},
          {"padded_length", prompt.padded_length},
          {"truncated", prompt.truncated},
          {"tensors", std::move(tensors)}};
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
  json prompts = json::array();
  for (std::size_t i = 0; i < job.outcome.prompts.size(); ++i) {
    prompts.push_back(prompt_fields(job.outcome.prompts[i]));
    if (context.return_input_ids) prompts.back()["input_ids"] = context.input_ids[i];
  }
  json fields = {{"job", job.id},
                 {"prompts", std::move(prompts)},
                 {"bytes", job.outcome.size_bytes},
                 {"ms",
                  {{"queue", rounded(job.queue_ms)},
                   {"compute", rounded(job.compute_ms)},
                   {"deliver", rounded(job.deliver_ms)},
                   {"total", rounded(milliseconds(Clock::now() - context.submitted))}}}};
  if (!context.name.empty()) fields["name"] = context.name;
  return ok_reply(context.id, fields);
}

json info_fields(const DaemonFacts& facts) {
  const TextConfig& model = facts.model;
  json ranks = json::array();
  for (std::size_t rank = 0; rank < facts.ranks.size(); ++rank) {
    const RankIdentity& identity = facts.ranks[rank];
    ranks.push_back(
        {{"rank", rank},
         {"node", identity.node},
         {"host", identity.host.data()},
         {"pid", identity.pid},
         {"device", identity.device.data()},
         {"reader_socket", identity.reader_socket.data()},
         {"bytes", {{"weights", identity.weight_bytes}, {"workspace", identity.workspace_bytes}}}});
  }
  return {{"version", GEMMAD_VERSION},
          {"mode", name(facts.config.mode)},
          {"collectives", facts.collectives},
          {"model",
           {{"path", facts.config.model},
            {"type", model.model_type},
            {"num_layers", model.num_layers},
            {"hidden_size", model.hidden_size},
            {"vocab_size", model.vocab_size}}},
          {"outputs", {"hidden_states", "last_hidden_state"}},
          {"ranks", std::move(ranks)},
          {"config", effective_config(facts.config)}};
}

json health_fields(const DaemonFacts& facts, const LiveState& state) {
  json ranks = json::array();
  for (std::size_t rank = 0; rank < state.ranks.ranks.size(); ++rank) {
    const RankStatus& status = state.ranks.ranks[rank];
    ranks.push_back({{"rank", rank},
                     {"state", state.ranks.encoding ? "encoding" : "idle"},
                     {"heard_ms_ago", rounded(milliseconds(Clock::now() - state.ranks.heard_at))},
                     {"tokens", status.tokens},
                     {"rss_bytes", status.rss_bytes},
                     {"segment",
                      {{"bytes", status.segment_bytes},
                       {"used_bytes", status.used_bytes},
                       {"leased_bytes", status.leased_bytes},
                       {"results", status.num_results},
                       {"leases", status.num_leases}}}});
  }
  return {{"status", state.draining ? "draining" : "ok"},
          {"uptime_s", rounded(milliseconds(Clock::now() - facts.ready_at) / 1000)},
          {"queue", {{"waiting", state.num_waiting}, {"running", state.num_running}}},
          {"clients", state.num_clients},
          {"ranks", std::move(ranks)}};
}

}  // namespace gemmad
