// Typed exchanges over the bootstrap.
#pragma once

#include <chrono>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "comm/bootstrap.h"

namespace gemmad {

/// Every rank gives `mine`; returns those of all ranks, by rank. Collective; throws BootstrapError past
/// `timeout`.
template <typename T>
requires std::is_trivially_copyable_v<T> std::vector<T> gather(Bootstrap& bootstrap, const T& mine,
                                                               std::chrono::milliseconds timeout) {
  const std::vector<std::byte> bytes = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)), timeout);
  std::vector<T> all(bytes.size() / sizeof(T));
  std::memcpy(all.data(), bytes.data(), all.size() * sizeof(T));
  return all;
}

}  // namespace gemmad
