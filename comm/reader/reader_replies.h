// What the daemon's lines say to a reader. Pure text work; tensors are checked against the segment's size.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "comm/reader/gemmad_reader.h"

namespace gemmad {

struct ReaderGreeting {
  int rank = 0;
  std::uint64_t segment_bytes = 0;
};

/// A line of the daemon, parsed once: `id` is what it echoes, 0 where it has none.
struct ReaderReply {
  std::uint64_t id = 0;
  std::shared_ptr<const nlohmann::json> body;
};

/// A result. Tensors lie inside the segment, and `data` is set.
struct AcquiredReply {
  std::uint64_t lease = 0;
  std::uint64_t job = 0;
  std::vector<Reader::Prompt> prompts;
};

/// Throws ReaderError: "protocol" for a line that is no greeting of our version, the daemon's own code where
/// it refuses the connection.
ReaderGreeting parse_greeting(std::string_view line);
/// Any line but the first. Throws ReaderError "protocol" when it is none.
ReaderReply parse_reply(std::string_view line);
/// What a reply to acquire says. Throws ReaderError: the daemon's code where it says no, "protocol" for a
/// reply that makes no sense or names bytes outside the segment.
AcquiredReply parse_acquired(const ReaderReply& reply, const void* segment_data, std::uint64_t segment_bytes);

std::string format_acquire(std::uint64_t id, std::uint64_t job, std::int64_t deadline_ms);
std::string format_acquire(std::uint64_t id, const std::string& name, std::int64_t deadline_ms);
std::string format_release(std::uint64_t id, std::uint64_t lease);

}  // namespace gemmad
