// Run under mpirun: checks the bootstrap and the collectives among all ranks. Every sum and byte must be
// exact. Exits with 1 on the first rank that finds something wrong.

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "comm/bootstrap_mpi.h"
#include "comm/collectives.h"
#include "tests/comm/collective_checks.h"
#include "tests/support/require.h"

namespace gemmad {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTimeout{20'000};

/// How many ranks are to be taken for a node; 0: all, as they are.
int forced_ranks_per_node() {
  const char* text = std::getenv("GEMMAD_RANKS_PER_NODE");
  return text == nullptr ? 0 : std::atoi(text);
}

void check_places(Bootstrap& bootstrap) {
  const RankInfo& info = bootstrap.info();
  require(info.rank >= 0 && info.rank < info.num_ranks, "the rank is one of the ranks");
  const int forced = forced_ranks_per_node();
  const int each = forced > 0 ? forced : info.num_ranks;
  require(info.num_nodes == (info.num_ranks + each - 1) / each, "there are as many nodes as it takes");
  require(info.node == info.rank / each && info.rank_on_node == info.rank % each,
          "nodes hold their ranks in order");
  require(info.ranks_on_node == std::min(each, info.num_ranks - info.node * each), "a node knows its ranks");
}

/// Every rank hands every other one a message whose size and bytes tell of both, in two parts, the first of
/// them empty for some.
void check_exchange(Bootstrap& bootstrap) {
  const RankInfo& info = bootstrap.info();
  const auto message = [](int from, int to, int part) {
    const auto size = static_cast<std::size_t>((from * 31 + to * 7) % 5 * (part + 1) * 1000);
    return std::vector<std::byte>(size, static_cast<std::byte>(from * 16 + to + part));
  };
  std::vector<std::vector<std::byte>> sent;
  std::vector<std::vector<std::byte>> received;
  for (int rank = 0; rank < info.num_ranks; ++rank) {
    for (int part = 0; part < 2 && rank != info.rank; ++part) {
      sent.push_back(message(info.rank, rank, part));
      received.emplace_back(message(rank, info.rank, part).size());
    }
  }
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const int peer = static_cast<int>(i / 2) + (static_cast<int>(i / 2) >= info.rank ? 1 : 0);
    outgoing.push_back({peer, sent[i]});
    incoming.push_back({peer, received[i]});
  }
  bootstrap.exchange(outgoing, incoming, kTimeout);
  for (std::size_t i = 0; i < received.size(); ++i) {
    require(received[i] == message(incoming[i].from, info.rank, static_cast<int>(i % 2)),
            "messages come whole, each in its place");
  }
}

/// A message that nobody sends is missed by the name of the rank. The last thing that a rank does: the
/// receive stays open.
void check_missing_rank(Bootstrap& bootstrap) {
  bootstrap.all_gather({}, kTimeout);
  if (bootstrap.info().rank != 0 || bootstrap.info().num_ranks < 2) return;
  static std::byte never;
  const Incoming incoming{1, {&never, 1}};
  std::string error;
  try {
    bootstrap.exchange({}, std::span(&incoming, 1), milliseconds(30));
  } catch (const BootstrapError& missed) {
    error = missed.what();
  }
  require(error.find("no answer from rank 1 within 30 ms") != std::string::npos, "rank 1 is named: " + error);
}

void check_all_gather(Bootstrap& bootstrap) {
  const std::int64_t mine = 1000 + bootstrap.info().rank;
  const std::vector<std::byte> bytes = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)), kTimeout);
  std::vector<std::int64_t> all(bytes.size() / sizeof mine);
  std::memcpy(all.data(), bytes.data(), bytes.size());
  require(static_cast<int>(all.size()) == bootstrap.info().num_ranks, "one part from every rank");
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    require(all[rank] == 1000 + static_cast<std::int64_t>(rank), "parts come rank after rank");
  }
  require(bootstrap.all_gather({}, kTimeout).empty(), "empty parts make an empty whole");
}

void check_announcements(Bootstrap& bootstrap) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, std::size_t{1} << 20}) {
    if (bootstrap.info().rank == 0) {
      bootstrap.announce(std::vector<std::byte>(size, std::byte{42}), kTimeout);
    } else {
      const auto message = bootstrap.wait_announcement(kTimeout);
      require(message.has_value() && *message == std::vector<std::byte>(size, std::byte{42}),
              "the announcement came whole");
    }
  }
  if (bootstrap.info().rank != 0) {
    require(!bootstrap.wait_announcement(milliseconds(5)), "nothing is announced, nothing comes");
  }
}

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Rank 0 sleeps, the others wait for it: they must wait without computing, and start soon after.
void check_idling(Bootstrap& bootstrap) {
  bootstrap.all_gather({}, kTimeout);
  constexpr double kIdleSeconds = 2;
  if (bootstrap.info().rank == 0) {
    std::this_thread::sleep_for(std::chrono::duration<double>(kIdleSeconds));
    const std::int64_t sent = Clock::now().time_since_epoch().count();
    bootstrap.announce(std::as_bytes(std::span(&sent, 1)), kTimeout);
  } else {
    const double before = cpu_seconds();
    const auto message = bootstrap.wait_announcement(kTimeout);
    const double share = (cpu_seconds() - before) / kIdleSeconds;
    require(message.has_value(), "the announcement woke this rank");
    std::int64_t sent = 0;
    std::memcpy(&sent, message->data(), sizeof sent);
    const auto late = Clock::now() - Clock::time_point(Clock::duration(sent));
    std::printf("rank %d: idle at %.2f %% of a core, woken after %.3f ms\n", bootstrap.info().rank,
                100 * share, std::chrono::duration<double, std::milli>(late).count());
    require(share < 0.02, "a rank that waits uses under 2 % of a core");
  }
}

void check_rings(Bootstrap& bootstrap) {
  bootstrap.all_gather({}, kTimeout);
  const RankInfo& info = bootstrap.info();
  if (info.rank != 0)
    require(bootstrap.ring_rank_0() == (info.node == 0), "rank 0 can be rung from its own node");
  bootstrap.all_gather({}, kTimeout);
  if (info.rank == 0)
    require(bootstrap.answer_doorbell() == (info.ranks_on_node > 1), "rank 0 was rung by the others alone");
}

int run() {
  const std::unique_ptr<Bootstrap> bootstrap = make_mpi_bootstrap();
  try {
    const Transport transport = host_transport(*bootstrap);
    check_places(*bootstrap);
    check_all_gather(*bootstrap);
    check_exchange(*bootstrap);
    for (const auto check :
         {check_broadcast, check_sums, check_order_of_sums, check_gathering, check_subgroups, check_chain})
      check(*bootstrap, transport);
    check_announcements(*bootstrap);
    // A rank on another node cannot be rung: it looks often, which costs more.
    if (bootstrap->info().num_nodes == 1) check_idling(*bootstrap);
    check_rings(*bootstrap);
    check_missing_rank(*bootstrap);
    if (bootstrap->info().rank == 0) std::printf("%d ranks: all exact\n", bootstrap->info().num_ranks);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", bootstrap->info().rank, error.what());
    bootstrap->abort(1);
  }
  return 1;
}

}  // namespace
}  // namespace gemmad

int main() {
  return gemmad::run();
}
