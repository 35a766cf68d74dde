#include "daemon/metrics.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

namespace gemmad {

namespace {

struct Family {
  std::string_view name;
  std::string_view type;
  std::string_view help;
};

constexpr std::array kFamilies = {
    Family{"gemmad_asleep", "gauge", "1 while the ranks hold no weights"},
    Family{"gemmad_batches_total", "counter", "Batches run"},
    Family{
        "gemmad_busy_seconds_total", "counter",
        "Time that ranks computed, all of them together; over gemmad_compute_seconds_total: how many worked "
        "at the same time"},
    Family{"gemmad_clients", "gauge", "Clients of the control socket"},
    Family{"gemmad_compute_seconds_total", "counter", "Time in the forward pass, rank 0"},
    Family{"gemmad_deliver_seconds_total", "counter", "Time in bringing results to all ranks, rank 0"},
    Family{"gemmad_delivered_bytes_total", "counter", "Bytes of results published, on each rank alike"},
    Family{"gemmad_enhancements_running", "gauge", "Prompts that are being rewritten"},
    Family{"gemmad_enhancements_total", "counter",
           "Requests to rewrite a prompt that ended, by result: ok or an error code"},
    Family{"gemmad_enhancements_waiting", "gauge", "Prompts that wait to be rewritten"},
    Family{"gemmad_generated_tokens_total", "counter", "Tokens generated to rewrite prompts"},
    Family{"gemmad_jobs_total", "counter", "Encode requests that ended, by result: ok or an error code"},
    Family{"gemmad_job_seconds_sum", "counter", "Time from submission to reply, of jobs that ended ok"},
    Family{"gemmad_jobs_running", "gauge", "Jobs in the running batch"},
    Family{"gemmad_jobs_waiting", "gauge", "Jobs in the queue"},
    Family{"gemmad_orders_total", "counter", "Switches, sleeps and wakes, by result: ok or an error code"},
    Family{"gemmad_prompts_total", "counter", "Prompts delivered"},
    Family{"gemmad_requests_total", "counter", "Requests by op; op=\"invalid\" for those that were none"},
    Family{"gemmad_result_cache_bytes", "gauge", "Bytes of a rank's segment with results to come back to"},
    Family{"gemmad_result_cache_hits_total", "counter", "Prompts answered with an earlier result"},
    Family{"gemmad_result_cache_jobs", "gauge", "Jobs whose results are kept to come back to"},
    Family{"gemmad_result_cache_misses_total", "counter", "Prompts that had no earlier result"},
    Family{"gemmad_result_cache_prompts", "gauge", "Different prompts that have a result to come back to"},
    Family{"gemmad_segment_bytes", "gauge", "Size of a rank's output segment"},
    Family{"gemmad_segment_kept_bytes", "gauge",
           "Bytes of a rank's segment kept for prompts that come again"},
    Family{"gemmad_segment_leased_bytes", "gauge", "Bytes of a rank's segment that readers hold"},
    Family{"gemmad_segment_used_bytes", "gauge", "Bytes of a rank's segment that hold results"},
    Family{"gemmad_tokens_total", "counter", "Tokens computed"},
    Family{"gemmad_uptime_seconds", "gauge", "Time since the daemon was ready"},
};

std::string_view family_of(const std::string& series) {
  return std::string_view(series).substr(0, series.find('{'));
}

std::string number(double value) {
  std::array<char, 32> text{};
  const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
  std::snprintf(text.data(), text.size(), whole ? "%.0f" : "%.9g", value);
  return text.data();
}

}  // namespace

void Metrics::add(const std::string& series, double amount) {
  const std::lock_guard lock(mutex_);
  series_[series] += amount;
}

void Metrics::set(const std::string& series, double value) {
  const std::lock_guard lock(mutex_);
  series_[series] = value;
}

std::string Metrics::text() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const Family& family : kFamilies) {
    std::string lines;
    for (const auto& [series, value] : series_) {
      if (family_of(series) == family.name) lines += series + " " + number(value) + "\n";
    }
    if (lines.empty()) continue;
    out += "# HELP " + std::string(family.name) + " " + std::string(family.help) + "\n";
    out += "# TYPE " + std::string(family.name) + " " + std::string(family.type) + "\n" + lines;
  }
  return out;
}

}  // namespace gemmad
