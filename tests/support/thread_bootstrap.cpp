#include "tests/support/thread_bootstrap.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace gemmad {

namespace {

/// What the ranks share. An exchange is complete when every rank has come; the last one wakes the rest.
class Meeting {
 public:
  explicit Meeting(int num_ranks) : parts_(static_cast<std::size_t>(num_ranks)) {}

  std::vector<std::vector<std::byte>> exchange(int rank, std::span<const std::byte> mine,
                                               Bootstrap::Milliseconds timeout) {
    std::unique_lock lock(mutex_);
    parts_[static_cast<std::size_t>(rank)].assign(mine.begin(), mine.end());
    const std::size_t round = round_;
    if (++come_ == parts_.size()) {
      come_ = 0;
      ++round_;
      complete_ = parts_;
      changed_.notify_all();
    } else if (!changed_.wait_for(lock, timeout, [&] { return round_ != round || broken_; }) ||
               round_ == round) {
      throw BootstrapError("rank " + std::to_string(rank) + " waits in vain for the others");
    }
    return complete_;
  }

  void break_up() {
    const std::lock_guard lock(mutex_);
    broken_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<std::byte>> parts_;
  std::vector<std::vector<std::byte>> complete_;
  std::size_t come_ = 0;
  std::size_t round_ = 0;
  bool broken_ = false;
};

class ThreadBootstrap final : public Bootstrap {
 public:
  ThreadBootstrap(Meeting& meeting, int rank, int num_ranks) : meeting_(meeting) {
    info_.rank = info_.rank_on_node = rank;
    info_.num_ranks = info_.ranks_on_node = num_ranks;
  }

  const RankInfo& info() const override { return info_; }

  std::vector<std::byte> all_gather(std::span<const std::byte> mine, Milliseconds timeout) override {
    std::vector<std::byte> all;
    for (const auto& part : meeting_.exchange(info_.rank, mine, timeout))
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }

  void broadcast(std::span<std::byte> bytes, int root, Milliseconds timeout) override {
    const auto parts = meeting_.exchange(info_.rank, bytes, timeout);
    std::copy(parts[static_cast<std::size_t>(root)].begin(), parts[static_cast<std::size_t>(root)].end(),
              bytes.begin());
  }

  void announce(std::span<const std::byte> message, Milliseconds timeout) override {
    meeting_.exchange(info_.rank, message, timeout);
  }

  std::optional<std::vector<std::byte>> wait_announcement(Milliseconds timeout) override {
    return meeting_.exchange(info_.rank, {}, timeout)[0];
  }

  bool ring_rank_0() override { return false; }
  int doorbell_fd() const override { return -1; }
  bool answer_doorbell() override { return false; }
  [[noreturn]] void abort(int exit_status) override {
    throw BootstrapError("aborted with " + std::to_string(exit_status));
  }

 private:
  Meeting& meeting_;
  RankInfo info_;
};

}  // namespace

void run_ranks(int num_ranks, const std::function<void(Bootstrap&)>& body) {
  Meeting meeting(num_ranks);
  std::mutex mutex;
  std::exception_ptr first_error;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ThreadBootstrap bootstrap(meeting, rank, num_ranks);
        body(bootstrap);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first_error) first_error = std::current_exception();
        meeting.break_up();
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace gemmad
