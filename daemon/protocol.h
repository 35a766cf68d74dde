// The control protocol's requests: JSON objects, one a line. Parsing is pure and bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "comm/job_id.h"
#include "daemon/enhance_request.h"
#include "daemon/job.h"

namespace gemmad {

/// What a request may hold; what goes beyond is an error that names value and limit.
struct ProtocolLimits {
  std::size_t max_line_bytes = 8 * 1024 * 1024;
  std::int64_t max_prompts = 256;  // a request
  std::int64_t max_deadline_ms = 86'400'000;
  std::int64_t num_layers = 0;  // L: hidden states 0 .. L can be asked for
  bool takes_text = true;       // there is a tokenizer
  bool has_processor = false;   // features and embeddings can be asked for
  bool has_enhancer = false;    // prompts can be rewritten
  bool has_vision = false;      // with an image too
  std::int64_t enhancer_vocab_size = 0;
  std::int64_t enhance_context = 0;  // most tokens of a prompt and its continuation
};

/// The `id` of a request as JSON text ("7", "\"a\""), to be echoed and compared; "null" when none could be
/// read.
using RequestId = std::string;

/// A prompt as it came: text, or ids that the client made.
using PromptInput = std::variant<std::string, std::vector<std::int64_t>>;

struct EncodeRequest {
  std::vector<PromptInput> prompts;
  OutputSelection outputs;  // all of 0 .. L when `layers` is absent
  std::string name;         // empty: none
  Preference prefer = Preference::kNone;
  std::int64_t readers = 0;  // of each place; 0: as many as the segments are made for
  std::optional<std::int64_t> deadline_ms;
  bool is_alone = false;  // so that the same prompts give the same bytes, whoever asks for what meanwhile
  bool return_input_ids = false;
  std::optional<EnhanceOptions> enhance;  // how the first prompt, which is text then, is rewritten before
};

struct TokenizeRequest {
  std::vector<std::string> texts;
  bool as_prompts = false;  // as encode does: strip, one BOS, cut; otherwise the text as it is
};

/// Names one encode or enhancement: exactly one of these. `request` is the id of a request on the same
/// connection.
struct CancelRequest {
  std::optional<JobId> job;
  std::optional<std::string> name;
  std::optional<RequestId> request;
};

/// Other settings for the model's layout: what is not named stays as it is. At least one is named.
struct SwitchRequest {
  std::optional<std::string> mode;
  std::optional<std::string> strategy;
  std::optional<std::int64_t> ranks_per_replica;
  std::optional<std::vector<std::int64_t>> encoder_ranks;
};

struct SleepRequest {};
struct WakeRequest {};
struct InfoRequest {};
struct HealthRequest {};
struct MetricsRequest {};
struct ShutdownRequest {};

using Command =
    std::variant<EncodeRequest, TokenizeRequest, InfoRequest, HealthRequest, MetricsRequest, CancelRequest,
                 SwitchRequest, SleepRequest, WakeRequest, ShutdownRequest, EnhanceRequest>;

struct Request {
  RequestId id;
  std::string_view op;  // "encode", "tokenize" ...; lives as long as the program
  Command command;
};

/// A request that cannot be carried out as it stands. Its reply carries `id`, `code` and what().
class ProtocolError : public std::runtime_error {
 public:
  ProtocolError(RequestId id, std::string code, const std::string& message)
      : std::runtime_error(message), id_(std::move(id)), code_(std::move(code)) {}
  const RequestId& id() const { return id_; }
  const std::string& code() const { return code_; }

 private:
  RequestId id_;
  std::string code_;
};

/// One line to a request. Throws ProtocolError ("bad_request", "unknown_op", "too_many_prompts",
/// "no_tokenizer", "no_enhancer", "no_vision") for everything that is not exactly a request of the protocol:
/// bad JSON, invalid UTF-8, repeated, unknown, missing or wrongly typed fields, values out of bounds.
Request parse_request(std::string_view line, const ProtocolLimits& limits);

/// One line an op with its fields, for help texts.
std::string protocol_help();

}  // namespace gemmad
