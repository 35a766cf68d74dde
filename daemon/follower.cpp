#include "daemon/follower.h"

#include "daemon/announcement.h"

namespace gemmad {

namespace {
constexpr std::chrono::milliseconds kLookUpEvery{1000};
}

void follow(Bootstrap& bootstrap, BatchRunner& runner, const std::function<void()>& alive) {
  for (;;) {
    alive();
    const auto message = bootstrap.wait_announcement(kLookUpEvery);
    if (!message) continue;
    const Announcement announcement = decode_announcement(*message);
    switch (announcement.kind) {
      case AnnouncementKind::kHeartbeat:
        runner.exchange_status();
        break;
      case AnnouncementKind::kBatch:
        runner.run(announcement.batch);
        break;
      case AnnouncementKind::kStop:
        return;
    }
  }
}

}  // namespace gemmad
