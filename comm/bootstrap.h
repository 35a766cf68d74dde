// How the ranks of one job find and call each other: small host-side exchanges, announcements, abort.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

namespace gemmad {

/// An exchange between ranks failed or passed its deadline. The job cannot go on.
class BootstrapError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Where this rank stands. Fixed for the life of the job.
struct RankInfo {
  int rank = 0;  // 0 .. num_ranks - 1
  int num_ranks = 1;
  int node = 0;  // 0 .. num_nodes - 1; node 0 is the one of rank 0
  int num_nodes = 1;
  int rank_on_node = 0;  // 0 .. ranks_on_node - 1
  int ranks_on_node = 1;
};

/// Bytes for, or from, one other rank. Views; they stay the caller's.
struct Outgoing {
  int to = 0;
  std::span<const std::byte> bytes;
};
struct Incoming {
  int from = 0;
  std::span<std::byte> bytes;
};

/// Used by the engine thread alone, but for alert, ring_rank_0 and the doorbell. Every wait spins only for a
/// moment, longer where ranks have cores to spare, and throws BootstrapError past `timeout`, naming the ranks
/// that did not answer.
class Bootstrap {
 public:
  using Milliseconds = std::chrono::milliseconds;

  virtual ~Bootstrap() = default;

  virtual const RankInfo& info() const = 0;

  /// Hands over all of `outgoing`, fills all of `incoming`; waits for both. Between two ranks messages are
  /// matched in the order of the calls and of their places in them, and must be of equal sizes. Empty ones
  /// are passed over.
  virtual void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                        Milliseconds timeout) = 0;

  /// Every rank gives `mine` (the same size on all ranks) and gets all of them, rank after rank. Collective:
  /// every rank calls it at the same place of its exchanges. Returns when every rank has called it, with
  /// nothing to give too.
  std::vector<std::byte> all_gather(std::span<const std::byte> mine, Milliseconds timeout);

  /// Rank 0 only: hands `message` to every other rank and wakes it. Returns when all have taken it.
  virtual void announce(std::span<const std::byte> message, Milliseconds timeout) = 0;

  /// Rank 0 only: wakes the ranks of its node, as an announcement will come in a moment; that they are awake
  /// by then saves its time. From any thread, never waits.
  virtual void alert() = 0;

  /// Every rank but 0: sleeps until rank 0 announces something, `timeout` at most. Uses next to no CPU
  /// meanwhile.
  virtual std::optional<std::vector<std::byte>> wait_announcement(Milliseconds timeout) = 0;

  /// Rings rank 0's doorbell; from any thread, never waits. False when rank 0 cannot be reached that way.
  virtual bool ring_rank_0() = 0;

  /// Readable when some rank has rung for this one. On rank 0 a ring asks it to stop. Owned by the bootstrap.
  virtual int doorbell_fd() const = 0;

  /// Takes the rings that came so far; true if there was one. From any thread.
  virtual bool answer_doorbell() = 0;

  /// Ends every rank at once with `exit_status`. From the engine thread.
  [[noreturn]] virtual void abort(int exit_status) = 0;
};

}  // namespace gemmad
