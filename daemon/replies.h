// The lines that answer requests.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "daemon/completion.h"
#include "daemon/daemon_facts.h"
#include "daemon/job_queue.h"
#include "daemon/metrics.h"
#include "daemon/protocol.h"
#include "daemon/rank_status.h"

namespace gemmad {

/// {"id": ID, "ok": true, FIELDS...} without a newline. `fields` must be an object.
std::string ok_reply(const RequestId& id, const nlohmann::json& fields);
/// {"id": ID, "ok": false, "error": {"code": ..., "message": ...}}
std::string error_reply(const RequestId& id, const std::string& code, const std::string& message);

/// What an encode's reply needs beside the outcome.
struct EncodeContext {
  RequestId id;
  std::string name;
  bool return_input_ids = false;
  std::vector<std::vector<std::int32_t>> input_ids;  // by prompt; only where return_input_ids
  Clock::time_point submitted;
  std::string enhanced;  // of the first prompt, where it was rewritten: an enhanced_object()
};

/// The final reply to an encode, ok or not.
std::string encode_reply(const EncodeContext& context, const CompletedJob& job);

/// What an enhancement's reply needs beside the outcome.
struct EnhanceContext {
  RequestId id;
  std::string name;
  Clock::time_point submitted;
};

/// {"id": ID, "event": "token", "text": ..., "ids": [...]}
std::string token_event(const RequestId& id, const GeneratedPiece& piece);
/// The final reply to an enhancement that went well.
std::string enhance_reply(const EnhanceContext& context, const EnhancementOutcome& outcome);
/// {"job": ..., "text": ..., "raw_text", "tokens_in", "tokens_out", "tokens_per_s", "stop", "ms"}: the same
/// beside another request's fields.
std::string enhanced_object(const EnhancementOutcome& outcome);

/// The reply to the one who gave an order.
std::string order_reply(const RequestId& id, const OrderOutcome& outcome, const DaemonFacts& facts);

nlohmann::json info_fields(const DaemonFacts& facts);

struct LiveState {
  bool draining = false;
  std::size_t num_waiting = 0;
  std::size_t num_running = 0;
  std::size_t num_enhancements_waiting = 0;
  std::size_t num_enhancements_running = 0;
  std::size_t num_clients = 0;
  StatusBoard::Snapshot ranks;
};

nlohmann::json health_fields(const DaemonFacts& facts, const LiveState& state);

/// The same as gauges of the metrics.
void set_gauges(Metrics& metrics, const DaemonFacts& facts, const LiveState& state);

}  // namespace gemmad
