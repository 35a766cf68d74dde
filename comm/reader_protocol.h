// The lines that a rank's reader endpoint and its readers exchange. Pure text work: no socket, no store.
//
//   <- {"gemmad_reader":1,"rank":0,"segment_bytes":1048576}                first, with the segment's
//   descriptor
//   -> {"id":1,"op":"acquire","job":12,"deadline_ms":5000}                 or "name":"x" in place of "job"
//   <- {"id":1,"ok":true,"lease":7,"job":12,"prompts":[{"status":"ok","tokens":12,"padded_length":1024,
//       "truncated":false,"tensors":[{"name":"hidden_states.0","dtype":"F32","shape":[12,96],"offset":4096,
//       "bytes":4608}]},{"status":"error","error":{"code":"...","message":"..."}}]}
//   -> {"id":2,"op":"release","lease":7}                                   <- {"id":2,"ok":true}
//   -> {"id":3,"op":"ping"}                                                <- {"id":3,"ok":true}
//   <- {"id":1,"ok":false,"error":{"code":"deadline","message":"..."}}     id null where the request had none
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "comm/result_store.h"

namespace gemmad {

constexpr int kReaderProtocolVersion = 1;
constexpr std::chrono::milliseconds kDefaultAcquireDeadline{60'000};
constexpr std::chrono::milliseconds kMaxAcquireDeadline{24 * 3600 * 1000};

/// Chosen by the client, echoed in the reply: an integer of 0 to 2^53.
using RequestId = std::uint64_t;

struct AcquireRequest {
  ResultKey key;
  std::chrono::milliseconds deadline = kDefaultAcquireDeadline;  // how long to wait; 0: answer at once
};
struct ReleaseRequest {
  LeaseId lease = 0;
};
struct PingRequest {};

struct ReaderRequest {
  RequestId id = 0;
  std::variant<AcquireRequest, ReleaseRequest, PingRequest> body;
};
/// A line that is no request.
struct BadReaderRequest {
  std::optional<RequestId> id;  // where one could be read
  std::string message;
};

/// Throws nothing but std::bad_alloc; `line` is any bytes. Unknown and repeated keys are refused.
std::variant<ReaderRequest, BadReaderRequest> parse_reader_request(std::string_view line);

// Replies, without a newline. Text that is not UTF-8 is mended.
std::string format_greeting(int rank, std::uint64_t segment_bytes);
std::string format_ok(RequestId id);
std::string format_acquired(RequestId id, const Acquired& acquired);
std::string format_error(std::optional<RequestId> id, std::string_view code, std::string_view message);

}  // namespace gemmad
