#include "daemon/rank.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <optional>
#include <thread>
#include <utility>

#include "comm/busy_time.h"
#include "comm/collectives.h"
#include "comm/reader_endpoint.h"
#include "comm/route.h"
#include "daemon/agreement.h"
#include "daemon/batch_runner.h"
#include "daemon/chosen_model.h"
#include "daemon/control_server.h"
#include "daemon/device.h"
#include "daemon/engine.h"
#include "daemon/follower.h"
#include "daemon/gather.h"
#include "daemon/leader.h"
#include "daemon/residency.h"

namespace gemmad {

namespace {

using std::chrono::milliseconds;

// Loading may take this much longer on one rank than on another.
constexpr milliseconds kStartTimeout{30 * 60'000};
constexpr std::int64_t kMebibyte = 1024 * 1024;

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
  Rank(Bootstrap& bootstrap, const DaemonConfig& config, const std::function<DaemonConfig()>& load_settings,
       const CaughtSignals& signals)
      : bootstrap_(bootstrap),
        config_(config),
        load_settings_(load_settings),
        signals_(signals),
        rank_(bootstrap.info().rank),
        is_leader_(rank_ == 0) {}

  void start() {
    find_places();
    // The control socket first: whoever holds its lock owns all the rest.
    step([&] {
      if (is_leader_) control_listener_.emplace(UnixListener::bind(config_.socket));
    });
    step([&] {
      if (publishes()) reader_listener_.emplace(UnixListener::bind(reader_socket(config_, rank_)));
    });
    step([&] {
      chosen_ = choose_model(config_, compute_threads(config_, bootstrap_.info()));
      make_shard_plan(chosen_.config, shard_settings(config_), bootstrap_.info().num_ranks);
      if (is_leader_ && chosen_.tokenizer_file) tokenizer_.emplace(Tokenizer::load(*chosen_.tokenizer_file));
    });
    make_segment();
    load_model();
    make_services();
  }

  void serve() {
    if (is_leader_) {
      lead();
    } else {
      follow(bootstrap_, *engine_, [this] { look_around(); });
    }
    if (endpoint_) endpoint_->stop();
  }

 private:
  void step(const std::function<void()>& body) { agree(bootstrap_, kStartTimeout, body); }

  void find_places() {
    const std::vector<int> nodes = gather(bootstrap_, bootstrap_.info().node, kStartTimeout);
    places_ = make_places(config_.segments, nodes);
    publisher_ =
        places_.publishers[static_cast<std::size_t>(places_.of_rank[static_cast<std::size_t>(rank_)])];
  }

  bool publishes() const { return publisher_ == rank_; }

  /// The publisher of a place makes its segment; the others of the place map it while that is still allowed.
  void make_segment() {
    SharedMemory::Address address;
    step([&] {
      if (!publishes()) return;
      segment_.emplace(Segment::create(static_cast<std::uint64_t>(config_.segment_mib * kMebibyte), rank_));
      address = segment_->address();
    });
    const std::vector<SharedMemory::Address> addresses = gather(bootstrap_, address, kStartTimeout);
    step([&] {
      if (!publishes())
        segment_.emplace(Segment::attach(addresses[static_cast<std::size_t>(publisher_)], publisher_));
    });
    step([&] {
      if (publishes()) segment_->seal();
    });
  }

  void load_model() {
    model_ = chosen_.config;
    device_ = make_device(config_, bootstrap_);
    results_ = bootstrap_.info().num_ranks == 1 ? one_rank_transport() : host_transport(bootstrap_);
    pin_segment();
    residency_.emplace(DeploymentParts{
        bootstrap_, ops(), model_, device_.links, results_, device_.results ? &*device_.results : nullptr,
        places_, processor_config(), compute_threads(config_, bootstrap_.info()), config_.batch_tokens,
        exchange_timeout(), milliseconds(config_.compute_timeout_ms)});
    Residency::Origins origins{std::move(chosen_.weights), nullptr};
    if (chosen_.processor) origins.processor = std::move(chosen_.processor->weights);
    residency_->load(origins, config_.weights_cache, shard_settings(config_), [this] {
      // Settings that are to be read again have just been read.
      if (const int signal = signals_.take(); signal != 0 && signal != SIGHUP)
        throw StepInterrupted("stopped while loading");
    });
  }

  std::optional<ProcessorConfig> processor_config() const {
    if (!chosen_.processor) return std::nullopt;
    return chosen_.processor->config;
  }

  /// So that the device copies results straight into it.
  void pin_segment() {
    step([&] { pinned_segment_ = ops().pin(segment_->bytes()); });
  }

  void make_services() {
    if (publishes()) {
      ResultStore::Options options;
      options.ttl = milliseconds(config_.result_ttl_ms);
      store_.emplace(*segment_, options);
    }
    ResultStore* const store = store_ ? &*store_ : nullptr;
    OutputFacts outputs{model_.num_layers, model_.hidden_size, ops().compute_dtype(), {}, kPaddedLength};
    if (const auto processor = processor_config())
      outputs.processor_widths = {processor->video.width(), processor->audio.width()};
    runner_.emplace(bootstrap_, ops(), Output{places_, *segment_, store}, outputs,
                    BatchRunner::Timeouts{exchange_timeout(), milliseconds(config_.compute_timeout_ms)});
    engine_.emplace(EngineParts{bootstrap_, *residency_, *runner_, store, stop_asked_}, config_,
                    [this] { return identity(); });
    if (publishes()) start_endpoint();
    // Nobody is told of a socket that does not listen yet.
    first_status_ = engine_->exchange_status();
  }

  Ops& ops() const { return *device_.ops; }
  milliseconds exchange_timeout() const { return milliseconds(config_.collective_timeout_ms); }

  RankIdentity identity() const {
    RankIdentity identity;
    identity.pid = ::getpid();
    identity.node = bootstrap_.info().node;
    identity.publisher = publisher_;
    std::array<char, 256> host{};
    check_system(::gethostname(host.data(), host.size() - 1), "ask for this host's name");
    identity.host = fixed_text<sizeof identity.host>(host.data());
    identity.reader_socket = fixed_text<sizeof identity.reader_socket>(reader_socket(config_, publisher_));
    identity.device = fixed_text<sizeof identity.device>(ops().description());
    identity.disk_bytes = residency_->disk_bytes();
    identity.shard.rank = -1;
    if (const auto memory = ops().memory_bytes()) {
      identity.device_free_bytes = memory->free;
      identity.device_total_bytes = memory->total;
    }
    if (residency_->asleep()) return identity;
    const Deployment& deployment = residency_->deployment();
    identity.shard = deployment.shard();
    identity.weight_bytes = deployment.weight_bytes();
    identity.replicated_bytes = deployment.replicated_bytes();
    identity.workspace_bytes = deployment.workspace_bytes();
    const DeviceBytes bytes = deployment.bytes();
    identity.processor_bytes = bytes.processor;
    identity.sum_bytes = bytes.sums;
    identity.delivery_bytes = bytes.delivery;
    identity.scratch_bytes = bytes.scratch;
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

  /// A first signal asks to stop; a second one ends at once.
  OutsideWord take_signal() {
    const int signal = signals_.take();
    if (signal == 0) return OutsideWord::kNothing;
    if (signal == SIGHUP) return OutsideWord::kReload;
    if (signals_.num_stops() > 1) ::_exit(128 + signal);
    return OutsideWord::kStop;
  }

  /// A rank other than 0 was told to stop: rank 0 stops all. Settings are rank 0's to read.
  void pass_on_stop() {
    if (take_signal() != OutsideWord::kStop || bootstrap_.ring_rank_0()) return;
    // From another node the word goes with the next heartbeat.
    stop_asked_ = true;
  }

  void lead() {
    JobQueue queue(static_cast<std::size_t>(config_.queue_length));
    StatusBoard status;
    status.set_ranks(std::move(first_status_));
    Metrics metrics;
    DaemonFacts facts;
    facts.config = config_;
    facts.model = model_;
    facts.has_tokenizer = tokenizer_.has_value();
    facts.processor = processor_config();
    facts.collectives = device_.links.name;
    facts.ranks = engine_->identities();
    facts.ready_at = Clock::now();
    const auto rung = [this] {
      return bootstrap_.answer_doorbell() ? OutsideWord::kStop : OutsideWord::kNothing;
    };
    const auto alert = [this, &queue] {
      queue.expect();
      bootstrap_.alert();
    };
    ControlServer control(
        std::move(*control_listener_),
        {tokenizer_ ? &*tokenizer_ : nullptr,
         queue,
         status,
         metrics,
         alert,
         {},
         busy_time(bootstrap_.info().ranks_on_node, std::chrono::microseconds(0))},
        facts, {{signals_.fd(), [this] { return take_signal(); }}, {bootstrap_.doorbell_fd(), rung}},
        load_settings_);
    control_listener_.reset();
    spdlog::info("ready: {} ranks, {}, {}; listening on {}", bootstrap_.info().num_ranks, name(config_.mode),
                 ops().description(), config_.socket);
    Leader({bootstrap_, *engine_, queue, control, status, metrics, [this] { look_around(); }}, facts).run();
    control.join();
    spdlog::info("stopped");
  }

  void look_around() {
    if (endpoint_failed_) throw std::runtime_error("the reader thread failed; see the log above");
    // Elsewhere the reader thread or the control thread hears signals at once.
    if (!endpoint_ && !is_leader_) pass_on_stop();
  }

  Bootstrap& bootstrap_;
  const DaemonConfig& config_;
  const std::function<DaemonConfig()>& load_settings_;
  const CaughtSignals& signals_;
  const int rank_;
  const bool is_leader_;
  std::atomic<bool> endpoint_failed_ = false;
  std::atomic<bool> stop_asked_ = false;

  Places places_;
  int publisher_ = 0;                             // of this rank's place
  std::optional<UnixListener> control_listener_;  // rank 0
  std::optional<UnixListener> reader_listener_;   // publishers
  ChosenModel chosen_;                            // its weights until they are loaded
  TextConfig model_;
  std::optional<Tokenizer> tokenizer_;  // rank 0, where the model has one
  std::optional<Segment> segment_;
  RankDevice device_;
  Transport results_;
  std::shared_ptr<void> pinned_segment_;
  std::optional<Residency> residency_;
  std::optional<ResultStore> store_;  // publishers
  std::optional<BatchRunner> runner_;
  std::optional<Engine> engine_;
  std::optional<ReaderEndpoint> endpoint_;  // publishers
  std::vector<RankStatus> first_status_;
};

}  // namespace

void run_rank(Bootstrap& bootstrap, const DaemonConfig& config,
              const std::function<DaemonConfig()>& load_settings, const CaughtSignals& signals) {
  Rank rank(bootstrap, config, load_settings, signals);
  rank.start();
  rank.serve();
}

}  // namespace gemmad
