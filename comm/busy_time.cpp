#include "comm/busy_time.h"

#include <thread>

namespace gemmad {

std::chrono::microseconds busy_time(int num_processes, std::chrono::microseconds on_few_cores) {
  constexpr unsigned kManyCores = 4;  // a process
  const unsigned cores = std::thread::hardware_concurrency();
  const bool spares = cores >= kManyCores * static_cast<unsigned>(num_processes);
  return spares ? std::chrono::milliseconds(20) : on_few_cores;
}

}  // namespace gemmad
