// The options of the benchmarks: pairs of a flag and its value.
#pragma once

#include <stdexcept>
#include <string>

namespace gemmad {

/// Calls use(flag, value) for every pair, in order. Throws what that throws; std::invalid_argument for a flag
/// without a value.
template <typename Use>
void for_each_flag(int argc, char** argv, const Use& use) {
  if (argc % 2 == 0) throw std::invalid_argument("every option takes a value");
  for (int i = 1; i + 1 < argc; i += 2)
    use(std::string(argv[i]), std::string(argv[i + 1]));
}

}  // namespace gemmad
