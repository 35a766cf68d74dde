// How much memory this host has left for us.
#pragma once

#include <cstdint>

namespace gemmad {

/// Memory that a process here can still take without swapping or being killed, in bytes: the host's, or less
/// where a control group limits it. Throws std::runtime_error when /proc/meminfo cannot be read.
std::uint64_t available_memory_bytes();

}  // namespace gemmad
