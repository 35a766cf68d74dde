// How long to wait busily for what comes in a moment, before sleeping.
#pragma once

#include <chrono>

namespace gemmad {

/// For a process of `num_processes` like it on this host. A thread that slept is awake again only 50 us after
/// its word has come, or more. Where processes have cores to spare, as beside GPUs, waits are busy for as
/// long as most batches last; where they share cores, so that others get on, for `on_few_cores`.
std::chrono::microseconds busy_time(int num_processes, std::chrono::microseconds on_few_cores);

}  // namespace gemmad
