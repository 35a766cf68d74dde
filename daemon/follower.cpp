#include "daemon/follower.h"

#include <string>

#include "daemon/announcement.h"

namespace gemmad {

namespace {
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookUpEvery{1000};
}  // namespace

void follow(Bootstrap& bootstrap, Engine& engine, const std::function<void()>& alive) {
  for (auto heard = Clock::now();;) {
    alive();
    const auto message = bootstrap.wait_announcement(kLookUpEvery);
    if (!message) {
      // Rank 0 announces a heartbeat when it has nothing else to say.
      if (Clock::now() - heard <= engine.longest_silence()) continue;
      throw BootstrapError("no answer from rank 0: not a word of it for " +
                           std::to_string(engine.longest_silence().count()) + " ms; it hangs or died");
    }
    const Announcement announcement = decode_announcement(*message);
    engine.forget(announcement.forget);
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
      case AnnouncementKind::kGenerate:
        engine.generate(announcement.generation);
        break;
      case AnnouncementKind::kTexts:
        engine.publish(announcement.texts);
        break;
      case AnnouncementKind::kRest:
        engine.rest_generation();
        break;
      case AnnouncementKind::kStop:
        return;
    }
    heard = Clock::now();
  }
}

}  // namespace gemmad
