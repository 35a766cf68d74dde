#include "comm/collectives.h"

#include <array>
#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/comm/collective_checks.h"
#include "tests/support/catch.h"
#include "tests/support/require.h"
#include "tests/support/thread_bootstrap.h"

namespace gemmad {
namespace {

constexpr std::chrono::milliseconds kTimeout{20'000};

/// Runs `check` on 1 .. 8 ranks over the host's transport.
void on_every_size(const std::function<void(Bootstrap&, const Transport&)>& check) {
  for (int num_ranks = 1; num_ranks <= 8; ++num_ranks) {
    CAPTURE(num_ranks);
    CHECK_NOTHROW(
        run_ranks(num_ranks, [&](Bootstrap& bootstrap) { check(bootstrap, host_transport(bootstrap)); }));
  }
}

TensorView view(std::vector<float>& values) {
  return {values.data(), DType::kF32, Shape{static_cast<std::int64_t>(values.size())}};
}

TEST_CASE("A broadcast gives every member the root's bytes, from every root") {
  on_every_size(check_broadcast);
}

TEST_CASE("Sums of whole numbers are exact, also of less elements than members") {
  on_every_size(check_sums);
}

TEST_CASE("Sums are made in the order of the members and are the same bytes on all of them") {
  on_every_size(check_order_of_sums);
}

TEST_CASE("A group's gathering puts every member's part in its place") {
  on_every_size(check_gathering);
}

TEST_CASE("Groups of some ranks keep to themselves and number their members in their own order") {
  on_every_size(check_subgroups);
}

TEST_CASE("What is sent down a chain of members arrives as it was, in order") {
  on_every_size(check_chain);
}

TEST_CASE("A gathering comes rank after rank") {
  on_every_size([](Bootstrap& bootstrap, const Transport&) {
    const std::array<std::byte, 3> mine = {std::byte{1}, static_cast<std::byte>(bootstrap.info().rank), {}};
    const std::vector<std::byte> all = bootstrap.all_gather(mine, kTimeout);
    require(all.size() == 3 * static_cast<std::size_t>(bootstrap.info().num_ranks), "one part a rank");
    for (std::size_t rank = 0; rank < all.size() / 3; ++rank)
      require(all[3 * rank + 1] == static_cast<std::byte>(rank), "in the order of the ranks");
  });
}

TEST_CASE("A gathering of nothing returns when every rank has called it") {
  constexpr int kRanks = 6;
  std::atomic<int> num_called = 0;
  run_ranks(kRanks, [&](Bootstrap& bootstrap) {
    ++num_called;
    require(bootstrap.all_gather({}, kTimeout).empty(), "empty parts make an empty whole");
    require(num_called == kRanks, "all have called it");
  });
}

TEST_CASE("A sum of another type than F32 is refused") {
  run_ranks(2, [](Bootstrap& bootstrap) {
    const auto group = host_transport(bootstrap).group({0, 1}, kTimeout);
    std::vector<std::uint8_t> bytes(4);
    bool refused = false;
    try {
      group->all_reduce({bytes.data(), DType::kU8, Shape{4}}, kNoStream);
    } catch (const std::invalid_argument&) {
      refused = true;
    }
    require(refused, "bytes are not summed");
  });
}

TEST_CASE("A group without its own rank is refused") {
  run_ranks(2, [](Bootstrap& bootstrap) {
    bool refused = false;
    try {
      host_transport(bootstrap).group({1 - bootstrap.info().rank}, kTimeout);
    } catch (const std::invalid_argument&) {
      refused = true;
    }
    require(refused, "a rank is a member of its groups");
  });
}

TEST_CASE("A member that does not take part is missed after the timeout") {
  CHECK_THROWS_AS(
      run_ranks(2,
                [](Bootstrap& bootstrap) {
                  if (bootstrap.info().rank == 1) return;
                  const auto group = host_transport(bootstrap).group({0, 1}, std::chrono::milliseconds(20));
                  std::vector<float> values(4);
                  group->all_reduce(view(values), kNoStream);
                }),
      BootstrapError);
}

TEST_CASE("One rank's groups leave tensors as they are") {
  const auto group = one_rank_transport().group({0}, kTimeout);
  std::vector<float> values = {1, 2, 3};
  group->broadcast(view(values), 0, kNoStream);
  group->all_reduce(view(values), kNoStream);
  group->all_gather(view(values), view(values), kNoStream);
  CHECK(values == std::vector<float>{1, 2, 3});
}

TEST_CASE("One rank's gathering is refused where it would have to copy") {
  const auto group = one_rank_transport().group({0}, kTimeout);
  std::vector<float> values = {1, 2, 3};
  std::vector<float> elsewhere(3);
  CHECK_THROWS_AS(group->all_gather(view(values), view(elsewhere), kNoStream), std::invalid_argument);
  CHECK_THROWS_AS(group->all_gather({values.data(), DType::kF32, Shape{2}}, view(values), kNoStream),
                  std::invalid_argument);
}

TEST_CASE("One rank's groups know no other member") {
  const auto group = one_rank_transport().group({0}, kTimeout);
  std::vector<float> values = {1};
  CHECK_THROWS_AS(group->broadcast(view(values), 1, kNoStream), std::invalid_argument);
  CHECK_THROWS_AS(group->send(view(values), 1, kNoStream), std::invalid_argument);
  CHECK_THROWS_AS(group->receive(view(values), 1, kNoStream), std::invalid_argument);
  CHECK_THROWS_AS(one_rank_transport().group({0, 1}, kTimeout), std::invalid_argument);
}

}  // namespace
}  // namespace gemmad
