#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <thread>

#include "comm/bootstrap_mpi.h"
#include "config/config_schema.h"
#include "config/daemon_config.h"
#include "daemon/agreement.h"
#include "daemon/command_line.h"
#include "daemon/log_level.h"
#include "daemon/rank.h"
#include "daemon/same_settings.h"
#include "daemon/signals.h"

namespace gemmad {
namespace {

enum ExitStatus { kStopped = 0, kCouldNotStart = 1, kWrongSettings = 2, kFailed = 3 };

void set_up_log(int rank) {
  auto log = std::make_shared<spdlog::logger>("gemmad", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  log->set_pattern("%Y-%m-%d %H:%M:%S.%e rank " + std::to_string(rank) + " %l: %v");
  log->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(log));
}

void say(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

/// The actions that need no other rank.
int answer(const CommandLine& line) {
  switch (line.action) {
    case CommandLine::Action::kHelp:
      say(help_text());
      break;
    case CommandLine::Action::kVersion:
      say("gemmad " GEMMAD_VERSION "\n");
      break;
    case CommandLine::Action::kPrintSchema:
      say(config_schema_text());
      break;
    case CommandLine::Action::kPrintConfig:
      say(effective_config(load_config(line.config_file, line.overrides)).dump(2) + "\n");
      break;
    case CommandLine::Action::kCheckConfig:
      validate_for_run(load_config(line.config_file, line.overrides));
      say("the settings are valid\n");
      break;
    case CommandLine::Action::kRun:
      break;
  }
  return kStopped;
}

/// What this rank does among the others. Whatever is wrong with the arguments is said once, by rank 0.
int run_among_ranks(Bootstrap& bootstrap, std::span<const char* const> arguments,
                    const CaughtSignals& signals) {
  const int rank = bootstrap.info().rank;
  set_up_log(rank);
  constexpr std::chrono::minutes kSettingsTimeout{1};
  CommandLine line;
  const auto load_settings = [&line] {
    DaemonConfig settings = load_config(line.config_file, line.overrides);
    validate_for_run(settings);
    return settings;
  };
  DaemonConfig config;
  try {
    agree(bootstrap, kSettingsTimeout, [&] {
      line = parse_command_line(arguments);
      config = load_settings();
    });
    check_same_settings(bootstrap, config, kSettingsTimeout);
  } catch (const StepFailed& error) {
    if (rank == 0) spdlog::critical("{}", error.what());
    return kWrongSettings;
  }
  set_log_level(config.log_level);

  try {
    run_rank(bootstrap, config, load_settings, signals);
    return kStopped;
  } catch (const StepInterrupted& error) {
    if (rank == 0) spdlog::info("{}", error.what());
    return kStopped;
  } catch (const StepFailed& error) {
    if (rank == 0) spdlog::critical("cannot start: {}", error.what());
    return kCouldNotStart;
  } catch (const BootstrapError& error) {
    // Of ranks that wait for each other in a row only the last one knows for whom: all have a moment to
    // speak.
    constexpr std::chrono::seconds kLastWords{1};
    spdlog::critical("{}; ending all ranks", error.what());
    std::this_thread::sleep_for(kLastWords);
    bootstrap.abort(kFailed);
  } catch (const std::exception& error) {
    spdlog::critical("{}; ending all ranks", error.what());
    bootstrap.abort(kFailed);
  }
  return kFailed;
}

int run(std::span<const char* const> arguments) {
  const CaughtSignals signals;
  std::optional<SecondSignalWatch> watch;  // outlives the bootstrap, whose end waits for the other ranks
  const std::unique_ptr<Bootstrap> bootstrap = make_mpi_bootstrap();
  const int status = run_among_ranks(*bootstrap, arguments, signals);
  watch.emplace(signals);
  return status;
}

int run_main(std::span<const char* const> arguments) {
  try {
    const CommandLine line = parse_command_line(arguments);
    if (line.action != CommandLine::Action::kRun) return answer(line);
  } catch (const ConfigError& error) {
    std::fprintf(stderr, "gemmad: %s\n", error.what());
    return kWrongSettings;
  } catch (const UsageError&) {
    // Many ranks may have been given the same wrong arguments: run() has one of them say so.
  }
  try {
    return run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gemmad: %s\n", error.what());
    return kCouldNotStart;
  }
}

}  // namespace
}  // namespace gemmad

int main(int argc, char** argv) {
  return gemmad::run_main(std::span<const char* const>(argv, static_cast<std::size_t>(argc)).subspan(1));
}
