// The number of a job, the same on every rank.
#pragma once

#include <cstdint>

namespace gemmad {

/// Given out by rank 0, rising, from 1. Never used twice in the life of a daemon.
using JobId = std::uint64_t;

}  // namespace gemmad
