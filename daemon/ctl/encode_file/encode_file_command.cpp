#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/ctl/commands.h"
#include "daemon/ctl/encode_fields.h"
#include "daemon/ctl/encode_file/encode_target.h"
#include "daemon/ctl/encode_file/group_encoder.h"
#include "daemon/ctl/encode_file/progress.h"
#include "daemon/ctl/team.h"

namespace gemmad {

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kStopped = 1;
constexpr int kSkippedSome = 3;

void check_options(const CtlOptions& options) {
  if (options.encode_file.input.empty()) throw CtlUsageError("encode-file needs a file of prompts");
  if (options.encode_file.folder.empty()) throw CtlUsageError("encode-file needs --out DIR");
  if (options.encode_file.field.empty()) throw CtlUsageError("--field is empty");
}

EncodeTarget ask_target(ControlClient& client, const CtlOptions& options) {
  const json info = client.call({{"op", "info"}});
  if (!info.value("ok", false)) throw ClientError("the daemon does not say what it has: " + info.dump());
  EncodeTarget target = encode_target(info, options);
  if (target.num_elsewhere > 0) {
    std::fprintf(stderr,
                 "gemmactl: %zu ranks are on other hosts; what nobody reads there keeps its space until it "
                 "expires (result_ttl_ms)\n",
                 target.num_elsewhere);
  }
  return target;
}

json request_fields(const CtlOptions& options, const EncodeTarget& target) {
  json fields = encode_fields(options);
  fields["outputs"] = target.outputs;
  fields["return_input_ids"] = options.encode_file.format == FileFormat::kGemmad;
  fields["readers"] = 1;  // also of a segment that several ranks share
  return fields;
}

PromptSource::Settings source_settings(const CtlOptions& options, const EncodeTarget& target) {
  return {options.encode_file.field, target.limits, static_cast<std::size_t>(target.batch),
          options.encode_file.overwrites};
}

struct RunEnd {
  ProgressCounts counts;
  Seconds wall{};
  bool interrupted = false;
  std::string failure;  // empty: none

  /// A signal may come when all is done already.
  bool finished() const { return failure.empty() && counts.done() >= counts.total; }
};

/// A run with all that its threads share.
class EncodeFileRun {
 public:
  EncodeFileRun(const CtlOptions& options, const EncodeTarget& target, std::int64_t num_lines)
      : folder_(options.encode_file.folder, target.settings, options.encode_file.overwrites),
        progress_(num_lines),
        problems_(options.encode_file.input, folder_.skipped_list(), options.encode_file.skips_errors, state_,
                  progress_, display_),
        source_(options.encode_file.input, source_settings(options, target), folder_, problems_, progress_,
                state_),
        context_{options.encode_file.format, folder_, problems_, progress_, state_} {
    for (std::int64_t i = 0; i < options.encode_file.in_flight; ++i) {
      encoders_.push_back(std::make_unique<GroupEncoder>(ControlClient::connect(options.socket, Seconds(0)),
                                                         target, request_fields(options, target), source_,
                                                         context_));
    }
  }

  RunEnd go(StopSignals& signals) {
    const auto start = Clock::now();
    Team team;
    for (const auto& encoder : encoders_)
      team.work.push_back([one = encoder.get()] { one->run(); });
    team.stop = [this] { state_.stop(); };
    team.progress = [this, start, told = start]() mutable {
      // It is also called when something has happened.
      if (Clock::now() - told < display_.every()) return;
      told = Clock::now();
      display_.show(progress_.counts(), told - start);
    };
    team.progress_every = display_.every();
    RunEnd end;
    end.interrupted = run_team(team, signals);
    display_.clear();
    end.counts = progress_.counts();
    end.wall = Clock::now() - start;
    end.failure = state_.failure();
    return end;
  }

 private:
  RunState state_;
  Display display_;
  OutputFolder folder_;
  Progress progress_;
  Problems problems_;
  PromptSource source_;
  WriterContext context_;
  std::vector<std::unique_ptr<GroupEncoder>> encoders_;  // last: they use all of the above
};

json summary_json(const RunEnd& end) {
  const Rates rates = rates_of(end.counts, end.wall);
  return {{"total", end.counts.total},
          {"encoded", end.counts.encoded},
          {"there_before", end.counts.there},
          {"skipped", end.counts.skipped},
          {"tokens", end.counts.tokens},
          {"wall_s", end.wall.count()},
          {"per_second", {{"prompts", rates.prompts}, {"tokens", rates.tokens}}},
          {"finished", end.finished()},
          {"interrupted", end.interrupted},
          {"error", end.failure.empty() ? json() : json(end.failure)}};
}

void print_summary(const RunEnd& end) {
  const Rates rates = rates_of(end.counts, end.wall);
  std::printf(
      "%lld prompts of %lld encoded in %s (%.1f prompts/s, %.0f tokens/s), %lld were there before, %lld "
      "skipped%s\n",
      static_cast<long long>(end.counts.encoded), static_cast<long long>(end.counts.total),
      duration_text(end.wall).c_str(), rates.prompts, rates.tokens, static_cast<long long>(end.counts.there),
      static_cast<long long>(end.counts.skipped), end.finished() ? "" : "; not finished");
}

}  // namespace

int encode_file_command(ControlClient& client, const CtlOptions& options) {
  check_options(options);
  const EncodeTarget target = ask_target(client, options);
  const std::int64_t num_lines = count_lines(options.encode_file.input);
  // Before there are threads, and behind what may take long without looking for signals.
  StopSignals signals;
  const RunEnd end = EncodeFileRun(options, target, num_lines).go(signals);
  if (!end.failure.empty()) std::fprintf(stderr, "gemmactl: %s\n", end.failure.c_str());
  if (!end.finished())
    std::fprintf(stderr, "gemmactl: %s holds what is done; the same command goes on from there\n",
                 options.encode_file.folder.c_str());
  if (options.json) {
    std::printf("%s\n", summary_json(end).dump(-1, ' ', false, json::error_handler_t::replace).c_str());
  } else {
    print_summary(end);
  }
  if (!end.finished()) return kStopped;
  return end.counts.skipped > 0 ? kSkippedSome : 0;
}

}  // namespace gemmad
