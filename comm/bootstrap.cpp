#include "comm/bootstrap.h"

#include <algorithm>

namespace gemmad {

std::vector<std::byte> Bootstrap::all_gather(std::span<const std::byte> mine, Milliseconds timeout) {
  if (mine.empty()) {
    const std::byte token{};
    all_gather(std::span(&token, 1), timeout);
    return {};
  }
  const std::size_t size = mine.size();
  std::vector<std::byte> all(size * static_cast<std::size_t>(info().num_ranks));
  // Each rank tells each: a rank that is missing is then known to all the others by its own silence.
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (int rank = 0; rank < info().num_ranks; ++rank) {
    const auto place = std::span(all).subspan(static_cast<std::size_t>(rank) * size, size);
    if (rank == info().rank) {
      std::copy(mine.begin(), mine.end(), place.begin());
    } else {
      outgoing.push_back({rank, mine});
      incoming.push_back({rank, place});
    }
  }
  exchange(outgoing, incoming, timeout);
  return all;
}

}  // namespace gemmad
