#include "comm/reader/gemmad_reader.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <span>
#include <utility>

#include "comm/reader/reader_channel.h"
#include "comm/reader/reader_replies.h"
#include "comm/reader/segment_mapping.h"

namespace gemmad {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kMaxTimeout{24 * 3600 * 1000};
// A daemon that listens gets this long to greet, also where the caller would rather not wait.
constexpr std::chrono::milliseconds kGreetingTimeout{2000};
// The daemon keeps the deadline; this much later it is taken for hung.
constexpr std::chrono::milliseconds kGrace{10'000};

std::chrono::milliseconds bounded(std::chrono::milliseconds timeout) {
  return std::clamp(timeout, std::chrono::milliseconds(0), kMaxTimeout);
}

std::string receive_greeting(ReaderChannel& channel, const std::string& path, Clock::time_point deadline) {
  auto line = channel.receive_line(deadline);
  if (!line)
    throw ReaderError("unresponsive", "the daemon at reader socket " + path + " accepts but does not greet");
  return std::move(*line);
}

}  // namespace

/// One socket and one mapping, shared by a Reader and its Results.
class Reader::Connection {
 public:
  Connection(ReaderChannel channel, const ReaderGreeting& greeting)
      : rank_(greeting.rank),
        channel_(std::move(channel)),
        mapping_(channel_.take_passed_fd().get(), greeting.segment_bytes, greeting.rank) {}

  int rank() const { return rank_; }
  std::span<const std::byte> segment() const { return mapping_.bytes(); }

  /// `format(id, deadline_ms)` makes the request.
  template <typename Format>
  AcquiredReply acquire(Format format, std::chrono::milliseconds timeout) {
    timeout = bounded(timeout);
    const std::lock_guard receiving(receive_mutex_);
    const std::uint64_t id = next_id_++;
    const auto deadline = Clock::now() + timeout + kGrace;
    send(format(id, timeout.count()), deadline);
    try {
      return parse_acquired(receive_reply(id, deadline), segment().data(), segment().size());
    } catch (const ReaderError& error) {
      // A lease that came with nonsense can only be ended with the connection.
      if (error.code() == "protocol") channel_.hang_up();
      throw;
    }
  }

  void release(std::uint64_t lease) noexcept {
    try {
      send(format_release(next_id_++, lease), Clock::now());
      const std::unique_lock receiving(receive_mutex_, std::try_to_lock);
      // Else whoever waits for a reply takes these off the socket.
      if (receiving) drain_replies();
    } catch (...) {
      // The lease ends with the connection.
      channel_.hang_up();
    }
  }

 private:
  void send(const std::string& line, Clock::time_point deadline) {
    const std::lock_guard sending(send_mutex_);
    if (channel_.send_line(line, deadline)) return;
    channel_.hang_up();
    throw ReaderError("unresponsive", "the daemon does not read its reader socket");
  }

  ReaderReply receive_reply(std::uint64_t id, Clock::time_point deadline) {
    while (const auto line = channel_.receive_line(deadline)) {
      ReaderReply reply = parse_reply(*line);
      if (reply.id == id) return reply;
      // Else it answers a release, which nobody waits for.
    }
    channel_.hang_up();
    throw ReaderError("unresponsive", "the daemon did not answer, well after the deadline");
  }

  void drain_replies() {
    while (channel_.receive_line(Clock::now())) {
    }
  }

  const int rank_;
  ReaderChannel channel_;
  const SegmentMapping mapping_;
  std::atomic<std::uint64_t> next_id_ = 1;
  std::mutex send_mutex_;
  std::mutex receive_mutex_;
};

const Reader::Tensor* Reader::Prompt::find(std::string_view name) const {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& tensor) { return tensor.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

Reader::Result::Result(std::shared_ptr<Connection> connection, std::uint64_t lease, std::uint64_t job,
                       std::vector<Prompt> prompts)
    : connection_(std::move(connection)), lease_(lease), job_(job), prompts_(std::move(prompts)) {}

Reader::Result::Result(Result&& other) noexcept = default;

Reader::Result& Reader::Result::operator=(Result&& other) noexcept {
  if (this == &other) return *this;
  release();
  connection_ = std::move(other.connection_);
  lease_ = other.lease_;
  job_ = other.job_;
  prompts_ = std::move(other.prompts_);
  return *this;
}

Reader::Result::~Result() {
  release();
}

void Reader::Result::release() noexcept {
  if (!connection_) return;
  connection_->release(lease_);
  // The prompts stay listed, the mapping goes with the last who needs it.
  connection_.reset();
}

Reader Reader::connect(const std::string& path, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + bounded(timeout);
  ReaderChannel channel = ReaderChannel::connect(path, deadline);
  const std::string line =
      receive_greeting(channel, path, std::max(deadline, Clock::now() + kGreetingTimeout));
  const ReaderGreeting greeting = parse_greeting(line);
  return Reader(std::make_shared<Connection>(std::move(channel), greeting));
}

Reader::Reader(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;
Reader::~Reader() = default;

Reader::Result Reader::acquire(std::uint64_t job, std::chrono::milliseconds timeout) {
  AcquiredReply reply = connection_->acquire(
      [&](std::uint64_t id, std::int64_t deadline_ms) { return format_acquire(id, job, deadline_ms); },
      timeout);
  return Result(connection_, reply.lease, reply.job, std::move(reply.prompts));
}

Reader::Result Reader::acquire_name(const std::string& name, std::chrono::milliseconds timeout) {
  AcquiredReply reply = connection_->acquire(
      [&](std::uint64_t id, std::int64_t deadline_ms) { return format_acquire(id, name, deadline_ms); },
      timeout);
  return Result(connection_, reply.lease, reply.job, std::move(reply.prompts));
}

int Reader::rank() const {
  return connection_->rank();
}
const void* Reader::segment_data() const {
  return connection_->segment().data();
}
std::size_t Reader::segment_bytes() const {
  return connection_->segment().size();
}

}  // namespace gemmad
