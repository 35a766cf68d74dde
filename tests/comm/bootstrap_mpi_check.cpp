// Run under mpirun: checks the bootstrap and the collectives among all ranks. Every sum and byte must be
// exact. Exits with 1 on the first rank that finds something wrong.

#include <time.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>

#include "comm/bootstrap_mpi.h"
#include "comm/collectives.h"

namespace gemmad {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTimeout{20'000};

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("not so: " + what);
}

void check_places(Bootstrap& bootstrap) {
  const RankInfo& info = bootstrap.info();
  require(info.rank >= 0 && info.rank < info.num_ranks, "the rank is one of the ranks");
  require(info.num_nodes == 1 && info.node == 0, "all ranks are on one node");
  require(info.ranks_on_node == info.num_ranks && info.rank_on_node == info.rank,
          "the node holds all ranks in order");
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

void check_broadcast(Bootstrap& bootstrap, Collectives& collectives) {
  for (int root = 0; root < bootstrap.info().num_ranks; ++root) {
    for (const std::int64_t size : {std::int64_t{1}, std::int64_t{257}, std::int64_t{3} << 20}) {
      std::vector<std::uint8_t> bytes(static_cast<std::size_t>(size),
                                      static_cast<std::uint8_t>(bootstrap.info().rank + 1));
      collectives.broadcast({bytes.data(), DType::kU8, Shape{size}}, root);
      const std::size_t sum = std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
      require(sum == static_cast<std::size_t>(size) * static_cast<std::size_t>(root + 1),
              "every byte is the root's");
    }
  }
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
  if (bootstrap.info().rank != 0) require(bootstrap.ring_rank_0(), "rank 0 can be rung");
  bootstrap.all_gather({}, kTimeout);
  if (bootstrap.info().rank == 0) {
    require(bootstrap.answer_doorbell() == (bootstrap.info().num_ranks > 1),
            "rank 0 was rung by the others alone");
  }
}

int run() {
  const std::unique_ptr<Bootstrap> bootstrap = make_mpi_bootstrap();
  try {
    const std::unique_ptr<Collectives> collectives = make_host_collectives(*bootstrap, kTimeout);
    check_places(*bootstrap);
    check_all_gather(*bootstrap);
    check_broadcast(*bootstrap, *collectives);
    check_announcements(*bootstrap);
    check_idling(*bootstrap);
    check_rings(*bootstrap);
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
