// Where this rank computes, and how its device's memory gets to other ranks.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "comm/bootstrap.h"
#include "comm/collectives.h"
#include "config/daemon_config.h"
#include "kernels/ops.h"

namespace gemmad {

/// A rank's device.
struct RankDevice {
  std::unique_ptr<Ops> ops;
  Transport links;                   // between parts of the model, on the device's memory
  std::optional<Transport> results;  // from device to device; nothing where results travel on the host
};

/// The device that `config` asks for: with kAuto a GPU where this build can use one and every rank has one of
/// its own, else the CPU, on all ranks alike. Rank r of a node takes its r-th GPU. Collective. Throws
/// StepFailed that says which rank lacks what.
RankDevice make_device(const DaemonConfig& config, Bootstrap& bootstrap);

/// Threads that this rank may compute with: as configured, or its share of the node's cores.
int compute_threads(const DaemonConfig& config, const RankInfo& info);

/// Where tuned products are kept: $XDG_CACHE_HOME/gemmad, or ~/.cache/gemmad; empty without either.
std::filesystem::path cache_folder();

}  // namespace gemmad
