#include "tests/comm/collective_checks.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/require.h"

namespace gemmad {
namespace {

constexpr std::chrono::milliseconds kTimeout{20'000};
constexpr std::int64_t kSizes[] = {0, 1, 3, 257, 100'003};

TensorView view(std::vector<float>& values) {
  return {values.data(), DType::kF32, Shape{static_cast<std::int64_t>(values.size())}};
}

std::vector<int> all_ranks(const Bootstrap& bootstrap) {
  std::vector<int> ranks(static_cast<std::size_t>(bootstrap.info().num_ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// Values that member `member` contributes, with many bits each.
std::vector<float> contribution(std::size_t member, std::int64_t size) {
  std::mt19937 random(static_cast<std::mt19937::result_type>(100 + member));
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(size));
  for (float& value : values)
    value = normal(random);
  return values;
}

bool same_bytes(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// The sum of all contributions, member after member.
std::vector<float> sum_in_order(std::size_t num_members, std::int64_t size) {
  std::vector<float> sum = contribution(0, size);
  for (std::size_t member = 1; member < num_members; ++member) {
    const std::vector<float> more = contribution(member, size);
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] += more[i];
  }
  return sum;
}

void check_group_sum(Collectives& group, std::size_t own, std::size_t num_members, std::int64_t size) {
  std::vector<float> values = contribution(own, size);
  group.all_reduce(view(values), kNoStream);
  require(same_bytes(values, sum_in_order(num_members, size)),
          "the sum of " + std::to_string(size) + " elements is that of the members in their order");
}

/// Bytes too are gathered, and what does not fit is refused before anything is sent.
void check_gathering_of_bytes(Collectives& group, std::size_t own, std::size_t num_members) {
  std::uint8_t mine = static_cast<std::uint8_t>(own + 1);
  std::vector<std::uint8_t> all(num_members);
  const auto room = [&](std::size_t size) {
    return TensorView{all.data(), DType::kU8, Shape{static_cast<std::int64_t>(size)}};
  };
  const TensorView part{&mine, DType::kU8, Shape{1}};
  group.all_gather(part, room(num_members), kNoStream);
  for (std::size_t member = 0; member < num_members; ++member)
    require(all[member] == member + 1, "a byte of each");
  bool refused = false;
  try {
    group.all_gather(part, room(num_members - 1), kNoStream);
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  require(refused, "there is room for all parts");
}

}  // namespace

void check_broadcast(Bootstrap& bootstrap, const Transport& transport) {
  const auto group = transport.group(all_ranks(bootstrap), kTimeout);
  for (int root = 0; root < bootstrap.info().num_ranks; ++root) {
    for (const std::int64_t size : kSizes) {
      std::vector<std::uint8_t> bytes(static_cast<std::size_t>(size),
                                      static_cast<std::uint8_t>(bootstrap.info().rank + 1));
      group->broadcast({bytes.data(), DType::kU8, Shape{size}}, root, kNoStream);
      require(std::all_of(bytes.begin(), bytes.end(), [&](std::uint8_t byte) { return byte == root + 1; }),
              "every byte is that of root " + std::to_string(root));
    }
  }
}

void check_sums(Bootstrap& bootstrap, const Transport& transport) {
  const int num_ranks = bootstrap.info().num_ranks;
  const auto group = transport.group(all_ranks(bootstrap), kTimeout);
  for (const std::int64_t size : kSizes) {
    std::vector<float> values(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((bootstrap.info().rank + 1) * static_cast<std::int64_t>(i % 1000));
    group->all_reduce(view(values), kNoStream);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto expected = num_ranks * (num_ranks + 1) / 2 * static_cast<std::int64_t>(i % 1000);
      require(values[i] == static_cast<float>(expected), "element " + std::to_string(i) + " is exact");
    }
  }
}

void check_order_of_sums(Bootstrap& bootstrap, const Transport& transport) {
  const auto group = transport.group(all_ranks(bootstrap), kTimeout);
  const auto own = static_cast<std::size_t>(bootstrap.info().rank);
  for (int round = 0; round < 3; ++round) {
    for (const std::int64_t size : kSizes)
      check_group_sum(*group, own, static_cast<std::size_t>(bootstrap.info().num_ranks), size);
  }
}

void check_gathering(Bootstrap& bootstrap, const Transport& transport) {
  // The highest rank first: parts come in the order of the members, which is not that of the ranks.
  std::vector<int> members = all_ranks(bootstrap);
  std::reverse(members.begin(), members.end());
  const auto own = members.size() - 1 - static_cast<std::size_t>(bootstrap.info().rank);
  const auto group = transport.group(members, kTimeout);
  for (const std::int64_t size : kSizes) {
    std::vector<float> expected;
    for (std::size_t member = 0; member < members.size(); ++member) {
      const std::vector<float> part = contribution(member, size);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    std::vector<float> mine = contribution(own, size);
    std::vector<float> all(expected.size());
    group->all_gather(view(mine), view(all), kNoStream);
    require(same_bytes(all, expected),
            std::to_string(size) + " elements come from each, member after member");

    std::fill(all.begin(), all.end(), 0.0f);
    float* const place = all.data() + own * mine.size();
    std::copy(mine.begin(), mine.end(), place);
    group->all_gather({place, DType::kF32, Shape{size}}, view(all), kNoStream);
    require(same_bytes(all, expected), "what is in its place already is as good");
  }
  check_gathering_of_bytes(*group, own, members.size());
}

void check_subgroups(Bootstrap& bootstrap, const Transport& transport) {
  // Even and odd ranks, the highest first.
  std::vector<int> members;
  for (int rank = bootstrap.info().num_ranks - 1; rank >= 0; --rank) {
    if (rank % 2 == bootstrap.info().rank % 2) members.push_back(rank);
  }
  const auto own = static_cast<std::size_t>(std::find(members.begin(), members.end(), bootstrap.info().rank) -
                                            members.begin());
  const auto group = transport.group(members, kTimeout);
  check_group_sum(*group, own, members.size(), 1001);
  for (std::size_t root = 0; root < members.size(); ++root) {
    std::vector<float> values(7, static_cast<float>(bootstrap.info().rank));
    group->broadcast(view(values), static_cast<int>(root), kNoStream);
    require(values == std::vector<float>(7, static_cast<float>(members[root])),
            "a root is a member's number, not a rank's");
  }
}

void check_chain(Bootstrap& bootstrap, const Transport& transport) {
  const int own = bootstrap.info().rank;
  const int last = bootstrap.info().num_ranks - 1;
  const auto group = transport.group(all_ranks(bootstrap), kTimeout);
  // Several on their way at once, as in a pipeline.
  for (int run = 0; run < 5; ++run) {
    std::vector<float> values = contribution(static_cast<std::size_t>(run), 4099);
    const std::vector<float> expected = values;
    if (own > 0) {
      std::fill(values.begin(), values.end(), 0.0f);
      group->receive(view(values), own - 1, kNoStream);
    }
    require(same_bytes(values, expected), "run " + std::to_string(run) + " arrives as it was");
    if (own < last) group->send(view(values), own + 1, kNoStream);
  }
}

}  // namespace gemmad
