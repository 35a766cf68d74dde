// Counters and gauges of the daemon, in Prometheus' text format.
#pragma once

#include <map>
#include <mutex>
#include <string>

namespace gemmad {

/// Thread-safe. A series is written as Prometheus shows it: `gemmad_requests_total{op="encode"}`. Callers use
/// label values from fixed sets only, so the number of series is bounded.
class Metrics {
 public:
  void add(const std::string& series, double amount = 1);
  void set(const std::string& series, double value);

  /// The exposition text: HELP and TYPE of each family, then its series, sorted.
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, double> series_;
};

}  // namespace gemmad
