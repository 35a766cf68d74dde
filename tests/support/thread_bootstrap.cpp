#include "tests/support/thread_bootstrap.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace gemmad {

namespace {

using Message = std::vector<std::byte>;

/// What the ranks share: messages on their way, by sender and receiver.
class Mailboxes {
 public:
  using Way = std::pair<int, int>;  // from, to

  void put(Way way, std::span<const std::byte> message) {
    const std::lock_guard lock(mutex_);
    boxes_[way].emplace_back(message.begin(), message.end());
    changed_.notify_all();
  }

  Message take(Way way, Bootstrap::Milliseconds timeout) {
    std::unique_lock lock(mutex_);
    std::deque<Message>& box = boxes_[way];
    if (!changed_.wait_for(lock, timeout, [&] { return !box.empty() || broken_; }) || box.empty()) {
      throw BootstrapError("rank " + std::to_string(way.second) + " waits in vain for rank " +
                           std::to_string(way.first));
    }
    Message message = std::move(box.front());
    box.pop_front();
    return message;
  }

  void break_up() {
    const std::lock_guard lock(mutex_);
    broken_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Way, std::deque<Message>> boxes_;
  bool broken_ = false;
};

class ThreadBootstrap final : public Bootstrap {
 public:
  ThreadBootstrap(Mailboxes& exchanges, Mailboxes& announcements, const RankInfo& info)
      : exchanges_(exchanges), announcements_(announcements), info_(info) {}

  const RankInfo& info() const override { return info_; }

  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                Milliseconds timeout) override {
    for (const Outgoing& message : outgoing) {
      if (!message.bytes.empty()) exchanges_.put({info_.rank, message.to}, message.bytes);
    }
    for (const Incoming& message : incoming) {
      if (message.bytes.empty()) continue;
      const Message received = exchanges_.take({message.from, info_.rank}, timeout);
      if (received.size() != message.bytes.size()) throw BootstrapError("a message of another size");
      std::copy(received.begin(), received.end(), message.bytes.begin());
    }
  }

  void announce(std::span<const std::byte> message, Milliseconds) override {
    for (int rank = 1; rank < info_.num_ranks; ++rank)
      announcements_.put({0, rank}, message);
  }

  void alert() override {}

  std::optional<std::vector<std::byte>> wait_announcement(Milliseconds timeout) override {
    return announcements_.take({0, info_.rank}, timeout);
  }

  bool ring_rank_0() override { return false; }
  int doorbell_fd() const override { return -1; }
  bool answer_doorbell() override { return false; }
  [[noreturn]] void abort(int exit_status) override {
    throw BootstrapError("aborted with " + std::to_string(exit_status));
  }

 private:
  Mailboxes& exchanges_;
  Mailboxes& announcements_;
  RankInfo info_;
};

RankInfo place_of(int rank, int num_ranks, int ranks_per_node) {
  RankInfo info;
  info.rank = rank;
  info.num_ranks = num_ranks;
  info.node = rank / ranks_per_node;
  info.num_nodes = (num_ranks + ranks_per_node - 1) / ranks_per_node;
  info.rank_on_node = rank % ranks_per_node;
  info.ranks_on_node = std::min(ranks_per_node, num_ranks - info.node * ranks_per_node);
  return info;
}

}  // namespace

void run_ranks(int num_ranks, const std::function<void(Bootstrap&)>& body, int ranks_per_node) {
  Mailboxes exchanges;
  Mailboxes announcements;
  std::mutex mutex;
  std::exception_ptr first_error;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ThreadBootstrap bootstrap(exchanges, announcements,
                                  place_of(rank, num_ranks, ranks_per_node > 0 ? ranks_per_node : num_ranks));
        body(bootstrap);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first_error) first_error = std::current_exception();
        exchanges.break_up();
        announcements.break_up();
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace gemmad
