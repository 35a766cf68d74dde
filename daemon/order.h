// What the daemon is told to do with itself, between two batches.
#pragma once

#include <cstdint>
#include <string>

namespace gemmad {

enum class OrderKind : std::uint8_t {
  kReconfigure,  // run with other settings: mode and all that changes at run time
  kSleep,        // give the device's memory back
  kWake,
};

struct Order {
  OrderKind kind = OrderKind::kReconfigure;
  /// Of kReconfigure, a JSON object: on its way to rank 0's engine those that change, and then, for every
  /// rank, all of them as parse_config reads them.
  std::string settings;
  std::uint64_t ticket = 0;  // the giver's, not shared among ranks; 0: nobody waits for the outcome
};

/// What became of an order; the same on every rank.
struct OrderOutcome {
  bool done = false;
  std::string code;  // when not done
  std::string message;
  double ms = 0;
};

}  // namespace gemmad
