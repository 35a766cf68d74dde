#include "daemon/same_settings.h"

#include "daemon/agreement.h"
#include "tests/support/catch.h"
#include "tests/support/thread_bootstrap.h"

namespace gemmad {
namespace {

constexpr std::chrono::milliseconds kTimeout{20'000};

/// What every one of three ranks says when `change` is made to the settings of the last; "" when all agree.
std::string common_failure(const std::function<void(DaemonConfig&)>& change) {
  std::vector<std::string> messages(3);
  run_ranks(3, [&](Bootstrap& bootstrap) {
    DaemonConfig config;
    if (bootstrap.info().rank == 2) change(config);
    try {
      check_same_settings(bootstrap, config, kTimeout);
    } catch (const StepFailed& error) {
      messages[static_cast<std::size_t>(bootstrap.info().rank)] = error.what();
    }
  });
  return messages[1] == messages[0] && messages[2] == messages[0] ? messages[0] : "ranks disagree";
}

}  // namespace

TEST_CASE("Ranks with the same settings agree") {
  CHECK(common_failure([](DaemonConfig&) {}).empty());
}

TEST_CASE("A setting that differs on one rank is named on all of them, with both values") {
  const auto batch_tokens = [](DaemonConfig& config) { config.batch_tokens = 4096; };
  CHECK(common_failure(batch_tokens) ==
        "rank 2: the setting batch_tokens is 4096 here and 8192 on rank 0; "
        "start all ranks with the same config and options");
  const auto slots = [](DaemonConfig& config) { config.enhance_slots += 1; };
  CHECK(common_failure(slots).find("the setting enhance.slots is") != std::string::npos);
  const auto ranks = [](DaemonConfig& config) { config.encoder_ranks = {0, 1}; };
  CHECK(common_failure(ranks).find("the setting encoder_ranks is [0,1] here and []") != std::string::npos);
}

TEST_CASE("A file that one rank has and rank 0 has not is named") {
  const auto processor = [](DaemonConfig& config) { config.embeddings_processor = "/ltx.safetensors"; };
  CHECK(common_failure(processor).find(
            "the setting embeddings_processor is set here and not set on rank 0") != std::string::npos);
}

TEST_CASE("Where files are, threads and the log may be each rank's own") {
  CHECK(common_failure([](DaemonConfig& config) {
          config.socket = "/elsewhere\xff";
          config.compute_threads = 3;
          config.log_level = LogLevel::kWarn;
        }).empty());
  run_ranks(2, [](Bootstrap& bootstrap) {
    DaemonConfig config;
    config.model = "/model/of/" + std::to_string(bootstrap.info().rank);
    CHECK_NOTHROW(check_same_settings(bootstrap, config, kTimeout));
  });
}

}  // namespace gemmad
