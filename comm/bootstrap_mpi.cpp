#include "comm/bootstrap_mpi.h"

// Only MPI's C interface: its retired C++ one would want a library of its own.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <set>
#include <string>
#include <thread>

#include "comm/busy_time.h"
#include "comm/doorbell.h"

namespace gemmad {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kAnnouncementTag = 1;
constexpr int kExchangeTag = 2;
// MPI counts are ints: larger transfers go in pieces.
constexpr std::size_t kPieceBytes = std::size_t{1} << 30;
constexpr std::chrono::milliseconds kStartTimeout{60'000};

// How long waits are busy where ranks share their cores.
constexpr std::chrono::microseconds kBusyOnFewCores{200};
// For how long a rank that was rung looks out for the announcement.
constexpr std::chrono::milliseconds kBusyWhenRung{2};

void check_mpi(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int size = 0;
  MPI_Error_string(result, text.data(), &size);
  throw BootstrapError(std::string(call) + ": " + std::string(text.data(), static_cast<std::size_t>(size)));
}

template <typename Byte, typename Body>
void for_each_piece(std::span<Byte> bytes, const Body& body) {
  for (std::size_t first = 0; first < bytes.size(); first += kPieceBytes)
    body(bytes.subspan(first, std::min(kPieceBytes, bytes.size() - first)));
}

/// Sends and receives under way, each with the rank at its other end.
class Requests {
 public:
  /// Room for one more, which MPI writes. `receives`: the bytes it must bring; negative for a send.
  MPI_Request* add(int peer, std::int64_t receives = -1) {
    return &requests_.emplace_back(Entry{MPI_REQUEST_NULL, peer, receives}).request;
  }

  /// Waits for all: busily for as long as `busy` says, for the sake of latency, then in naps, so that ranks
  /// which share a core get on. What is past its deadline cannot be taken back, so the caller must treat the
  /// error as fatal.
  void wait(Bootstrap::Milliseconds timeout, Clock::duration busy, const char* what) {
    const auto start = Clock::now();
    while (!test(what)) {
      const auto waited = Clock::now() - start;
      if (waited > timeout) {
        const std::string who = missing();
        // Answers that came while this rank itself stood still.
        if (who.empty()) continue;
        throw BootstrapError(std::string(what) + ": no answer from " + who + " within " +
                             std::to_string(timeout.count()) + " ms; it hangs or died");
      }
      if (waited < busy) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(waited < std::chrono::milliseconds(20) ? std::chrono::microseconds(20)
                                                                           : std::chrono::microseconds(200));
      }
    }
  }

 private:
  struct Entry {
    MPI_Request request;
    int peer;
    std::int64_t receives;
  };

  bool test(const char* what) {
    for (; first_open_ < requests_.size(); ++first_open_) {
      Entry& entry = requests_[first_open_];
      int done = 0;
      MPI_Status status;
      check_mpi(MPI_Test(&entry.request, &done, &status), what);
      if (done == 0) return false;
      if (entry.receives >= 0) check_size(entry, status, what);
    }
    return true;
  }

  /// A rank that failed where others went on is at another exchange than they: nothing it says fits.
  static void check_size(const Entry& entry, const MPI_Status& status, const char* what) {
    int count = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
    if (count == entry.receives) return;
    throw BootstrapError(std::string(what) + ": rank " + std::to_string(entry.peer) + " is out of step: " +
                         std::to_string(count) + " bytes came, expected " + std::to_string(entry.receives));
  }

  /// "rank 2", "ranks 2, 3"; empty when all have come.
  std::string missing() {
    std::set<int> ranks;
    for (std::size_t i = first_open_; i < requests_.size(); ++i) {
      int done = 0;
      MPI_Test(&requests_[i].request, &done, MPI_STATUS_IGNORE);
      if (done == 0) ranks.insert(requests_[i].peer);
    }
    std::string text;
    for (const int rank : ranks)
      text += (text.empty() ? "" : ", ") + std::to_string(rank);
    if (ranks.empty()) return {};
    return (ranks.size() == 1 ? "rank " : "ranks ") + text;
  }

  std::deque<Entry> requests_;  // MPI keeps their addresses
  std::size_t first_open_ = 0;
};

/// For tests: takes every so many ranks of one machine for a node of their own, which shares nothing with the
/// others. 0: nodes are as MPI finds them.
int forced_ranks_per_node() {
  const char* text = std::getenv("GEMMAD_RANKS_PER_NODE");
  return text == nullptr ? 0 : std::max(0, std::atoi(text));
}

class MpiBootstrap final : public Bootstrap {
 public:
  MpiBootstrap() {
    int provided = MPI_THREAD_SINGLE;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_FUNNELED) throw BootstrapError("this MPI cannot run beside other threads");
    check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    find_own_place();
    busy_ = busy_time(info_.ranks_on_node, kBusyOnFewCores);
    exchange_doorbells();
  }

  ~MpiBootstrap() override { MPI_Finalize(); }

  const RankInfo& info() const override { return info_; }

  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                Milliseconds timeout) override {
    Requests requests;
    for (const Incoming& message : incoming) {
      for_each_piece(message.bytes, [&](std::span<std::byte> piece) {
        check_mpi(
            MPI_Irecv(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, message.from, kExchangeTag,
                      MPI_COMM_WORLD, requests.add(message.from, static_cast<std::int64_t>(piece.size()))),
            "MPI_Irecv");
      });
    }
    for (const Outgoing& message : outgoing) {
      for_each_piece(message.bytes, [&](std::span<const std::byte> piece) {
        check_mpi(MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, message.to, kExchangeTag,
                            MPI_COMM_WORLD, requests.add(message.to)),
                  "MPI_Isend");
      });
    }
    requests.wait(timeout, busy_, "exchange between ranks");
  }

  void announce(std::span<const std::byte> message, Milliseconds timeout) override {
    if (message.size() > INT_MAX) throw BootstrapError("announce: a message of over 2 GiB");
    Requests requests;
    for (int rank = 1; rank < info_.num_ranks; ++rank) {
      check_mpi(MPI_Isend(message.data(), static_cast<int>(message.size()), MPI_BYTE, rank, kAnnouncementTag,
                          MPI_COMM_WORLD, requests.add(rank)),
                "MPI_Isend");
    }
    alert();
    requests.wait(timeout, busy_, "announcement");
  }

  void alert() override {
    for (std::size_t rank = 1; rank < doorbells_.size(); ++rank)
      doorbell_.ring(doorbells_[rank]);
  }

  std::optional<std::vector<std::byte>> wait_announcement(Milliseconds timeout) override {
    const auto deadline = Clock::now() + timeout;
    auto busy_until = Clock::now();
    for (;;) {
      if (auto message = take_announcement()) {
        doorbell_.answer();  // what rang for it
        return message;
      }
      const auto now = Clock::now();
      if (now >= deadline) return std::nullopt;
      // The ring may overtake the message: look for it busily for a moment before sleeping again.
      if (now < busy_until) {
        std::this_thread::yield();
      } else if (sleep_until_rung(std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - now))) {
        busy_until = Clock::now() + kBusyWhenRung;
      }
    }
  }

  bool ring_rank_0() override { return doorbell_.ring(doorbells_[0]); }
  int doorbell_fd() const override { return doorbell_.fd(); }
  bool answer_doorbell() override { return doorbell_.answer(); }

  [[noreturn]] void abort(int exit_status) override {
    MPI_Abort(MPI_COMM_WORLD, exit_status);
    std::_Exit(exit_status);
  }

 private:
  void find_own_place() {
    check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &info_.rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &info_.num_ranks), "MPI_Comm_size");
    MPI_Comm on_node = MPI_COMM_NULL;
    if (const int ranks = forced_ranks_per_node(); ranks > 0) {
      check_mpi(MPI_Comm_split(MPI_COMM_WORLD, info_.rank / ranks, info_.rank, &on_node), "MPI_Comm_split");
    } else {
      check_mpi(
          MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, info_.rank, MPI_INFO_NULL, &on_node),
          "MPI_Comm_split_type");
    }
    check_mpi(MPI_Comm_rank(on_node, &info_.rank_on_node), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(on_node, &info_.ranks_on_node), "MPI_Comm_size");
    int first_rank = info_.rank;
    check_mpi(MPI_Bcast(&first_rank, 1, MPI_INT, 0, on_node), "MPI_Bcast");
    check_mpi(MPI_Comm_free(&on_node), "MPI_Comm_free");

    // A node is named by its first rank; nodes are numbered in the order of their names.
    std::vector<int> first_ranks(static_cast<std::size_t>(info_.num_ranks));
    check_mpi(MPI_Allgather(&first_rank, 1, MPI_INT, first_ranks.data(), 1, MPI_INT, MPI_COMM_WORLD),
              "MPI_Allgather");
    std::sort(first_ranks.begin(), first_ranks.end());
    first_ranks.erase(std::unique(first_ranks.begin(), first_ranks.end()), first_ranks.end());
    info_.num_nodes = static_cast<int>(first_ranks.size());
    info_.node = static_cast<int>(std::lower_bound(first_ranks.begin(), first_ranks.end(), first_rank) -
                                  first_ranks.begin());
  }

  void exchange_doorbells() {
    struct Entry {
      int node;
      DoorbellAddress address;
    };
    const Entry mine{info_.node, doorbell_.address()};
    const std::vector<std::byte> all = all_gather(std::as_bytes(std::span(&mine, 1)), kStartTimeout);
    doorbells_.resize(static_cast<std::size_t>(info_.num_ranks));
    for (std::size_t rank = 0; rank < doorbells_.size(); ++rank) {
      Entry entry;
      std::memcpy(&entry, all.data() + rank * sizeof entry, sizeof entry);
      if (entry.node == info_.node) doorbells_[rank] = entry.address;
    }
  }

  std::optional<std::vector<std::byte>> take_announcement() {
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    check_mpi(MPI_Improbe(0, kAnnouncementTag, MPI_COMM_WORLD, &found, &message, &status), "MPI_Improbe");
    if (found == 0) return std::nullopt;
    int count = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
    std::vector<std::byte> bytes(static_cast<std::size_t>(count));
    Requests requests;
    check_mpi(MPI_Imrecv(bytes.data(), count, MPI_BYTE, &message, requests.add(0)), "MPI_Imrecv");
    requests.wait(kStartTimeout, busy_, "announcement");
    return bytes;
  }

  /// Sleeps on the doorbell; a rank that rank 0 cannot ring (another node) naps briefly instead. True if
  /// rung.
  bool sleep_until_rung(std::chrono::nanoseconds at_most) {
    const std::chrono::nanoseconds nap = info_.node == 0
                                             ? std::chrono::nanoseconds(std::chrono::seconds(1))
                                             : std::chrono::nanoseconds(std::chrono::microseconds(400));
    const std::chrono::nanoseconds time = std::min(at_most, nap);
    const timespec limit{static_cast<time_t>(time.count() / 1'000'000'000),
                         static_cast<long>(time.count() % 1'000'000'000)};
    pollfd bell{doorbell_.fd(), POLLIN, 0};
    const int ready = ::ppoll(&bell, 1, &limit, nullptr);
    if (ready < 0 && errno != EINTR)
      throw BootstrapError("wait for the doorbell: " + std::string(std::strerror(errno)));
    return ready > 0 && doorbell_.answer();
  }

  RankInfo info_;
  Clock::duration busy_ = kBusyOnFewCores;
  Doorbell doorbell_;
  std::vector<DoorbellAddress> doorbells_;  // by rank; empty where it is on another node
};

}  // namespace

std::unique_ptr<Bootstrap> make_mpi_bootstrap() {
  return std::make_unique<MpiBootstrap>();
}

}  // namespace gemmad
