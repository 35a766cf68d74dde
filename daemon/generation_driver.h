// Rank 0's loop body for enhancements: one step of all that run, and what has come of it to those who asked.
#pragma once

#include <chrono>
#include <functional>

#include "daemon/announcement.h"
#include "daemon/completion.h"
#include "daemon/engine.h"
#include "daemon/enhancements.h"
#include "daemon/job_queue.h"

namespace gemmad {

/// What a driver works with. All must outlive it.
struct GenerationDriverParts {
  Enhancements& enhancements;
  Engine& engine;
  JobQueue& queue;
  CompletionSink& sink;
  std::function<void(Announcement)> announce;
};

/// On rank 0's engine thread.
class GenerationDriver {
 public:
  /// `rank`: whose replica continues all sequences; below 0: all replicas do.
  GenerationDriver(GenerationDriverParts parts, int rank);

  /// Takes up what came, and what is given up.
  void take(JobQueue::Work& work);
  bool is_active() const { return parts_.enhancements.is_active(); }
  /// One step on all ranks: a pass over what runs. Throws as Engine's calls do.
  void step();
  /// After an order: where it took the memory of the sequences, they begin anew, over the replicas that there
  /// are now.
  void look_after_order();
  /// Gives the memory of generation back when nothing has run for `patience`.
  void rest_when_idle(std::chrono::milliseconds patience);

 private:
  void hand_over();
  void restart();

  GenerationDriverParts parts_;
  int rank_;
  std::uint64_t known_version_ = 0;  // of the generation's memory
  bool rests_ = true;
  Clock::time_point idle_since_{};
};

}  // namespace gemmad
