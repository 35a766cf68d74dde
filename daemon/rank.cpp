#include "daemon/rank.h"

#include <sched.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "comm/collectives.h"
#include "comm/reader_endpoint.h"
#include "daemon/agreement.h"
#include "daemon/batch_runner.h"
#include "daemon/control_server.h"
#include "daemon/follower.h"
#include "daemon/gather.h"
#include "daemon/leader.h"
#include "daemon/load_progress.h"
#include "daemon/model/model_files.h"
#include "kernels/cpu/cpu_ops.h"

namespace gemmad {

namespace {

using std::chrono::milliseconds;

// Loading may take this much longer on one rank than on another.
constexpr milliseconds kStartTimeout{30 * 60'000};
constexpr std::int64_t kMebibyte = 1024 * 1024;

int compute_threads(const DaemonConfig& config, const RankInfo& info) {
  if (config.compute_threads > 0) return static_cast<int>(config.compute_threads);
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  // A launcher may have bound this rank to some cores already.
  cpu_set_t allowed;
  const int bound = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : cores;
  return std::max(1, std::min(bound, cores / info.ranks_on_node));
}

std::string reader_socket(const DaemonConfig& config, int rank) {
  return config.socket + ".reader-" + std::to_string(rank);
}

LineServer::Limits reader_limits(const DaemonConfig& config) {
  LineServer::Limits limits;
  limits.max_clients = static_cast<std::size_t>(config.max_readers);
  limits.max_unsent_bytes = static_cast<std::size_t>(config.max_unsent_bytes);
  limits.stall_timeout = milliseconds(config.client_stall_ms);
  return limits;
}

/// Everything that a rank holds between start and stop, in the order in which it is made.
class Rank {
 public:
  Rank(Bootstrap& bootstrap, const DaemonConfig& config, const StopSignals& signals)
      : bootstrap_(bootstrap), config_(config), signals_(signals), is_leader_(bootstrap.info().rank == 0) {}

  void start() {
    // The control socket first: whoever holds its lock owns all the rest.
    step([&] {
      if (is_leader_) control_listener_.emplace(UnixListener::bind(config_.socket));
    });
    step([&] {
      reader_listener_.emplace(UnixListener::bind(reader_socket(config_, bootstrap_.info().rank)));
    });
    step([&] {
      files_.emplace(open_model(config_.model));
      if (is_leader_) tokenizer_.emplace(Tokenizer::load(files_->tokenizer_file()));
    });
    step([&] {
      segment_.emplace(Segment::create(static_cast<std::uint64_t>(config_.segment_mib * kMebibyte),
                                       bootstrap_.info().rank));
    });
    step([&] { load_encoder(); });
    make_services();
  }

  void serve() {
    if (is_leader_) {
      lead();
    } else {
      follow(bootstrap_, *runner_, [this] { check_endpoint(); });
    }
    endpoint_->stop();
  }

 private:
  void step(const std::function<void()>& body) { agree(bootstrap_, kStartTimeout, body); }

  void load_encoder() {
    ops_ = make_cpu_ops(compute_threads(config_, bootstrap_.info()));
    std::optional<LoadProgressLine> line;
    if (is_leader_) line.emplace("loading " + config_.model);
    TextWeights weights =
        load_text_weights(*files_, *ops_, [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
          if (line) line->update(done_bytes, total_bytes);
          if (signals_.take() != 0) throw StepInterrupted("stopped while loading");
        });
    encoder_.emplace(files_->config(), std::move(weights), *ops_, config_.batch_tokens);
  }

  void make_services() {
    const milliseconds exchange_timeout(config_.collective_timeout_ms);
    collectives_ = bootstrap_.info().num_ranks == 1 ? make_one_rank_collectives()
                                                    : make_host_collectives(bootstrap_, exchange_timeout);
    ResultStore::Options options;
    options.ttl = milliseconds(config_.result_ttl_ms);
    store_.emplace(*segment_, options);
    runner_.emplace(bootstrap_, *collectives_, *encoder_, *ops_, *store_,
                    BatchRunner::Timeouts{exchange_timeout, milliseconds(config_.compute_timeout_ms)});
    facts_ = DaemonFacts{config_, files_->config(), std::string(collectives_->name()),
                         gather(bootstrap_, identity(), exchange_timeout), Clock::now()};
    start_endpoint();
    first_status_ = runner_->exchange_status();
  }

  RankIdentity identity() const {
    RankIdentity identity;
    identity.pid = ::getpid();
    identity.node = bootstrap_.info().node;
    check_system(::gethostname(identity.host.data(), identity.host.size() - 1), "ask for this host's name");
    identity.reader_socket =
        fixed_text<sizeof identity.reader_socket>(reader_socket(config_, bootstrap_.info().rank));
    identity.device = fixed_text<sizeof identity.device>(ops_->description());
    identity.weight_bytes = encoder_->weight_bytes();
    identity.workspace_bytes = encoder_->workspace_bytes();
    return identity;
  }

  void start_endpoint() {
    ReaderEndpoint::Options options;
    options.on_fatal = [this](const std::string&) { endpoint_failed_ = true; };
    if (!is_leader_) options.watches.push_back({signals_.fd(), [this] { pass_on_stop(); }});
    endpoint_.emplace(std::move(*reader_listener_), reader_limits(config_), *segment_, *store_,
                      std::move(options));
    reader_listener_.reset();
  }

  /// A rank other than 0 was told to stop: rank 0 stops all. A second signal ends this one, and so the job.
  void pass_on_stop() {
    const int signal = signals_.take();
    if (signal == 0) return;
    if (signals_.num_taken() > 1) ::_exit(128 + signal);
    if (!bootstrap_.ring_rank_0())
      spdlog::warn("cannot reach rank 0 from this node: send it the signal, or use gemmactl shutdown");
  }

  /// A first signal asks to stop; a second one ends at once.
  bool take_stop_signal() {
    const int signal = signals_.take();
    if (signal == 0) return false;
    if (signals_.num_taken() > 1) ::_exit(128 + signal);
    return true;
  }

  void lead() {
    JobQueue queue(static_cast<std::size_t>(config_.queue_length));
    StatusBoard status;
    status.set_ranks(std::move(first_status_));
    Metrics metrics;
    ControlServer control(std::move(*control_listener_), {facts_, *tokenizer_, queue, status, metrics},
                          {{signals_.fd(), [this] { return take_stop_signal(); }},
                           {bootstrap_.doorbell_fd(), [this] { return bootstrap_.answer_doorbell(); }}});
    control_listener_.reset();
    spdlog::info("ready: {} ranks, {}, {}; listening on {}", bootstrap_.info().num_ranks, name(config_.mode),
                 ops_->description(), config_.socket);
    const LeaderSettings settings{config_.batch_tokens, milliseconds(config_.heartbeat_ms),
                                  milliseconds(config_.collective_timeout_ms)};
    Leader({bootstrap_, *runner_, queue, control, status, metrics, [this] { check_endpoint(); }}, settings)
        .run();
    control.join();
    spdlog::info("stopped");
  }

  void check_endpoint() const {
    if (endpoint_failed_) throw std::runtime_error("the reader thread failed; see the log above");
  }

  Bootstrap& bootstrap_;
  const DaemonConfig& config_;
  const StopSignals& signals_;
  const bool is_leader_;
  std::atomic<bool> endpoint_failed_ = false;

  std::optional<UnixListener> control_listener_;  // rank 0
  std::optional<UnixListener> reader_listener_;
  std::optional<ModelFiles> files_;
  std::optional<Tokenizer> tokenizer_;  // rank 0
  std::optional<Segment> segment_;
  std::unique_ptr<Ops> ops_;
  std::optional<TextEncoder> encoder_;
  std::unique_ptr<Collectives> collectives_;
  std::optional<ResultStore> store_;
  std::optional<BatchRunner> runner_;
  std::vector<RankStatus> first_status_;
  DaemonFacts facts_;
  std::optional<ReaderEndpoint> endpoint_;
};

}  // namespace

void run_rank(Bootstrap& bootstrap, const DaemonConfig& config, const StopSignals& signals) {
  Rank rank(bootstrap, config, signals);
  rank.start();
  rank.serve();
}

}  // namespace gemmad
