#include "daemon/agreement.h"

#include "daemon/gather.h"
#include "daemon/rank_status.h"

namespace gemmad {

namespace {

struct StepReport {
  enum class Result : std::uint8_t { kDone, kFailed, kInterrupted } result = Result::kDone;
  std::array<char, 1536> message{};
};

}  // namespace

void agree(Bootstrap& bootstrap, std::chrono::milliseconds timeout, const std::function<void()>& step) {
  StepReport mine;
  try {
    step();
  } catch (const StepInterrupted& error) {
    mine.result = StepReport::Result::kInterrupted;
    mine.message = fixed_text<sizeof mine.message>(error.what());
  } catch (const std::exception& error) {
    mine.result = StepReport::Result::kFailed;
    mine.message = fixed_text<sizeof mine.message>(error.what());
  }
  const std::vector<StepReport> all = gather(bootstrap, mine, timeout);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].result == StepReport::Result::kDone) continue;
    if (all[rank].result == StepReport::Result::kInterrupted) throw StepInterrupted(all[rank].message.data());
    // What rank 0 met as well needs no rank beside it.
    const std::string where = rank == 0 ? "" : "rank " + std::to_string(rank) + ": ";
    throw StepFailed(where + all[rank].message.data());
  }
}

}  // namespace gemmad
