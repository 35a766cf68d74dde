#include "daemon/follower.h"

#include "daemon/announcement.h"

namespace gemmad {

namespace {
constexpr std::chrono::milliseconds kLookUpEvery{1000};
}

void follow(Bootstrap& bootstrap, Engine& engine, const std::function<void()>& alive) {
  for (;;) {
    alive();
    const auto message = bootstrap.wait_announcement(kLookUpEvery);
    if (!message) continue;
    const Announcement announcement = decode_announcement(*message);
    switch (announcement.kind) {
      case AnnouncementKind::kHeartbeat:
        engine.exchange_status();
        break;
      case AnnouncementKind::kBatch:
        engine.run(announcement.batch);
        engine.exchange_status();
        break;
      case AnnouncementKind::kOrder:
        engine.execute(announcement.order);
        break;
      case AnnouncementKind::kStop:
        return;
    }
  }
}

}  // namespace gemmad
