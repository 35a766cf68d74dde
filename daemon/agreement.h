// Steps that all ranks take together or not at all.
#pragma once

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>

#include "comm/bootstrap.h"

namespace gemmad {

/// A step failed on some rank. The same on all ranks; what() is one sentence that says on which and why.
class StepFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A step was given up because somebody asked the daemon to stop. Thrown by a step, and then on every rank.
class StepInterrupted : public StepFailed {
 public:
  using StepFailed::StepFailed;
};

/// Runs `step` on every rank, then tells all how it went everywhere. Collective. Throws StepFailed on every
/// rank when it threw on one (StepInterrupted when it threw that); BootstrapError when a rank does not answer
/// within `timeout` after this one is done.
void agree(Bootstrap& bootstrap, std::chrono::milliseconds timeout, const std::function<void()>& step);

}  // namespace gemmad
