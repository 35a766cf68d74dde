#include "daemon/agreement.h"

#include "daemon/gather.h"
#include "daemon/rank_status.h"

namespace gemmad {

namespace {

struct StepReport {
  bool failed = false;
  std::array<char, 1536> message{};
};

}  // namespace

void agree(Bootstrap& bootstrap, std::chrono::milliseconds timeout, const std::function<void()>& step) {
  StepReport mine;
  try {
    step();
  } catch (const std::exception& error) {
    mine.failed = true;
    mine.message = fixed_text<sizeof mine.message>(error.what());
  }
  const std::vector<StepReport> all = gather(bootstrap, mine, timeout);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].failed) continue;
    // What rank 0 met as well needs no rank beside it.
    const std::string where = rank == 0 ? "" : "rank " + std::to_string(rank) + ": ";
    throw StepFailed(where + all[rank].message.data());
  }
}

}  // namespace gemmad
