// Work on the host that is cut into parts, one a thread.
#pragma once

#include <cstddef>
#include <thread>
#include <vector>

namespace gemmad {

/// Calls make(begin, count) for `num_parts` parts of 0 .. size, one a thread, the first on the caller's, and
/// waits for all. `make` throws nothing. Throws std::system_error when no thread can be started.
template <typename Make>
void in_parts(std::size_t size, std::size_t num_parts, const Make& make) {
  const auto bound = [&](std::size_t part) { return size * part / num_parts; };
  std::vector<std::jthread> threads;
  for (std::size_t part = 1; part < num_parts; ++part)
    threads.emplace_back([&, part] { make(bound(part), bound(part + 1) - bound(part)); });
  make(0, bound(1));
}

}  // namespace gemmad
