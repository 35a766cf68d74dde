// Rank 0's book of enhancements: who waits, who has a slot, how far each text has come, when it is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "daemon/enhancement.h"
#include "daemon/generation_order.h"
#include "daemon/job.h"
#include "daemon/model/generation/repetition_guard.h"
#include "daemon/tokenizer/text_stream.h"
#include "daemon/tokenizer/tokenizer.h"

namespace gemmad {

/// Used by rank 0's engine thread alone.
class Enhancements {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// `tokenizer`, which must outlive this, is the generating model's; generation ends with one of `stop_ids`.
  Enhancements(const Tokenizer& tokenizer, std::vector<std::int32_t> stop_ids, std::int64_t slots_per_replica)
      : tokenizer_(tokenizer), stop_ids_(std::move(stop_ids)), slots_per_replica_(slots_per_replica) {}

  void add(QueuedEnhancement queued);
  /// Ends one as `failure` says; nothing happens where it has ended.
  void give_up(const FailureNotice& failure);
  /// The replicas that sequences are dealt to from now on, by number. All sequences begin anew.
  void restart(std::vector<std::int32_t> replicas);
  /// Ends all, as `code` and `message` say.
  void fail_all(const std::string& code, const std::string& message);

  /// Whether there is something to compute, or to tell.
  bool is_active() const { return !open_.empty() || !ended_.empty(); }
  bool has_running() const;

  /// The next step, to be carried out where has_running() then: what has ended leaves, what waits takes the
  /// slots that are free, in the replica with the fewest sequences. Those past their deadline end.
  GenerationOrder next_order(TimePoint now);
  /// What became of it. Returns the texts that have come on.
  std::vector<GeneratedPiece> hear(const StepReport& report, TimePoint now);

  struct Ended {
    TextNotice notice;
    EnhancementOutcome outcome;
  };
  /// Those that have ended since the last call.
  std::vector<Ended> take_ended() { return std::exchange(ended_, {}); }

 private:
  struct Open {
    QueuedEnhancement queued;
    std::optional<std::int32_t> replica;  // once it runs
    bool is_begun = false;                // on the ranks
    std::vector<std::int32_t> generated;  // without the id that ends it
    TextStream stream;
    RepetitionGuard guard;
    std::string text;
    std::int64_t tokens_out = 0;
    std::optional<TimePoint> started;
    std::optional<TimePoint> first_token;
    TimePoint last_token{};
  };

  std::optional<StopReason> take_token(Open& open, std::int32_t token, TimePoint now, GeneratedPiece& piece);
  void finish(Open& open, StopReason reason);
  void fail(Open& open, const std::string& code, const std::string& message);
  void leave(Open& open);
  std::string decoded(const std::vector<std::int32_t>& ids) const;
  std::optional<std::int32_t> free_replica() const;
  Open* find(JobId id);

  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> stop_ids_;
  std::int64_t slots_per_replica_;
  std::vector<std::int32_t> replicas_{0};
  std::list<Open> open_;        // by age
  std::vector<JobId> leaving_;  // whose sequences the ranks still have
  std::vector<Ended> ended_;
};

}  // namespace gemmad
