#include "daemon/ctl/bench/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "daemon/ctl/bench/percentile.h"

namespace gemmad {

namespace {

using nlohmann::json;

/// `parts` of 1: 1000 gives three decimals.
double rounded(double value, double parts) {
  return std::round(value * parts) / parts;
}

json request_ms_fields(std::vector<double> request_ms) {
  std::sort(request_ms.begin(), request_ms.end());
  const auto figure = [](double value) { return rounded(value, 1e3); };
  return {{"p50", figure(nearest_rank(request_ms, 50))},
          {"p90", figure(nearest_rank(request_ms, 90))},
          {"p99", figure(nearest_rank(request_ms, 99))},
          {"max", figure(request_ms.back())}};
}

json share_fields(const DoneRequest& sum) {
  const double queue = rounded(sum.queue_ms / sum.total_ms, 1e4);
  const double compute = rounded(sum.compute_ms / sum.total_ms, 1e4);
  const double deliver = rounded(sum.deliver_ms / sum.total_ms, 1e4);
  return {{"queue", queue},
          {"compute", compute},
          {"deliver", deliver},
          {"rest", rounded(1 - queue - compute - deliver, 1e4)}};
}

json rate_fields(const TallyTotals& totals, double wall_s) {
  const auto per_second = [&](auto count) { return rounded(static_cast<double>(count) / wall_s, 1e3); };
  return {{"requests", per_second(totals.num_done())},
          {"prompts", per_second(totals.sum.prompts)},
          {"tokens", per_second(totals.sum.tokens)},
          {"reader_bytes", per_second(totals.sum.reader_bytes)}};
}

json setting_fields(const CtlOptions& options, const std::vector<int>& copying_ranks) {
  const BenchOptions& bench = options.bench;
  json fields = {{"tokens", bench.tokens_text}, {"concurrency", bench.concurrency},
                 {"requests", nullptr},         {"seconds", nullptr},
                 {"warmup", bench.warmup},      {"seed", nullptr},
                 {"prefer", nullptr},           {"outputs", nullptr},
                 {"layers", nullptr},           {"read_ranks", copying_ranks}};
  if (bench.seed) fields["seed"] = *bench.seed;
  if (bench.requests) fields["requests"] = *bench.requests;
  if (bench.seconds) fields["seconds"] = *bench.seconds;
  if (!options.prefer.empty()) fields["prefer"] = options.prefer;
  if (!options.outputs.empty()) fields["outputs"] = options.outputs;
  if (!options.layers.empty()) fields["layers"] = options.layers;
  return fields;
}

template <typename... Values>
std::string formatted(const char* format, Values... values) {
  std::array<char, 256> buffer;
  const int size = std::snprintf(buffer.data(), buffer.size(), format, values...);
  return std::string(buffer.data(), std::min(static_cast<std::size_t>(size), buffer.size() - 1));
}

/// "1.23 GB"
std::string bytes_text(double bytes) {
  if (bytes >= 1e9) return formatted("%.2f GB", bytes / 1e9);
  return formatted("%.2f MB", bytes / 1e6);
}

std::string readers_text(const json& ranks, double bytes_per_second) {
  if (ranks.empty()) return "nothing read";
  std::string text = bytes_text(bytes_per_second) +
                     (ranks.size() == 1 ? " to the reader of rank" : " to the readers of ranks");
  for (const json& rank : ranks)
    text += " " + rank.dump();
  return text;
}

/// "queue_full 3, deadline 1"
std::string counts_text(const json& counts) {
  std::string text;
  for (const auto& [name, count] : counts.items())
    text += (text.empty() ? "" : ", ") + name + " " + count.dump();
  return text;
}

}  // namespace

json bench_report(const TallyTotals& totals, const LoadEnd& end, const CtlOptions& options,
                  const std::vector<int>& copying_ranks) {
  json errors = json::object();
  for (const auto& [code, failed] : totals.failures)
    errors[code] = failed.count;
  json report = {{"done", totals.num_done()},
                 {"failed", totals.num_failed()},
                 {"errors", std::move(errors)},
                 {"interrupted", end.interrupted},
                 {"wall_s", rounded(end.wall.count(), 1e6)},
                 {"prompts", totals.sum.prompts},
                 {"tokens", totals.sum.tokens},
                 {"reader_bytes", totals.sum.reader_bytes},
                 {"cuts", totals.cuts},
                 {"request_ms", nullptr},
                 {"per_second", nullptr},
                 {"shares", nullptr},
                 {"settings", setting_fields(options, copying_ranks)}};
  if (totals.num_done() > 0) {
    report["request_ms"] = request_ms_fields(totals.request_ms);
    report["per_second"] = rate_fields(totals, end.wall.count());
    report["shares"] = share_fields(totals.sum);
  }
  return report;
}

std::string bench_table(const json& report) {
  const json& settings = report.at("settings");
  std::string table =
      formatted("requests     %lld done, %lld failed in %.2f s%s\n", report.at("done").get<long long>(),
                report.at("failed").get<long long>(), report.at("wall_s").get<double>(),
                report.at("interrupted").get<bool>() ? ", interrupted" : "");
  table += formatted("load         %lld at a time, prompts of %.100s tokens\n",
                     settings.at("concurrency").get<long long>(),
                     settings.at("tokens").get<std::string>().c_str());
  if (!report.at("errors").empty()) table += "failures     " + counts_text(report.at("errors")) + "\n";
  if (report.at("done") == 0) return table;

  const auto number = [&](const char* group, const char* name) {
    return report.at(group).at(name).get<double>();
  };
  table += formatted("request ms   p50 %.2f   p90 %.2f   p99 %.2f   max %.2f\n", number("request_ms", "p50"),
                     number("request_ms", "p90"), number("request_ms", "p99"), number("request_ms", "max"));
  table += formatted("a second     %.2f requests   %.2f prompts   %.1f tokens   ",
                     number("per_second", "requests"), number("per_second", "prompts"),
                     number("per_second", "tokens"));
  table += readers_text(settings.at("read_ranks"), number("per_second", "reader_bytes")) + "\n";
  table += formatted("time         queue %.1f %%   compute %.1f %%   deliver %.1f %%   rest %.1f %%\n",
                     100 * number("shares", "queue"), 100 * number("shares", "compute"),
                     100 * number("shares", "deliver"), 100 * number("shares", "rest"));
  // Where none was split, it goes without saying.
  if (report.at("cuts").contains("split")) table += "spread       " + counts_text(report.at("cuts")) + "\n";
  return table;
}

}  // namespace gemmad
