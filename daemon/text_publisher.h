// Puts texts where the readers of every rank find them.
#pragma once

#include <chrono>
#include <vector>

#include "comm/bootstrap.h"
#include "daemon/batch_runner.h"
#include "daemon/generation_order.h"
#include "daemon/verdict.h"

namespace gemmad {

/// A text is a result with one prompt and one tensor, "text" [bytes] U8: UTF-8 without a zero at its end.
/// Used by the engine thread alone.
class TextPublisher {
 public:
  /// What `output` names must outlive the publisher, as must `bootstrap`.
  TextPublisher(Bootstrap& bootstrap, const Output& output, std::chrono::milliseconds exchange_timeout)
      : bootstrap_(bootstrap), output_(output), exchange_timeout_(exchange_timeout) {}

  /// Collective. Readers find each text on every rank, or on none, where some rank has no space for it: they
  /// are told so, as they are of a notice that is not ok. Throws BootstrapError.
  void publish(const std::vector<TextNotice>& notices);

 private:
  void settle(const TextNotice& notice, Verdict verdict);

  Bootstrap& bootstrap_;
  Output output_;
  std::chrono::milliseconds exchange_timeout_;
};

}  // namespace gemmad
