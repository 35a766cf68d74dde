// Reads what a gemmad rank on this host publishes. The one public header of libgemmad_reader; standard
// library only.
//
//   gemmad::Reader reader = gemmad::Reader::connect("/run/user/1000/gemmad/reader.0.sock",
//   std::chrono::seconds(10)); gemmad::Reader::Result result = reader.acquire_name("clip-17",
//   std::chrono::seconds(60)); for (const auto& prompt : result.prompts()) use(prompt.tensors);
//
// Threads: a Reader may be used from several threads; its acquires are served one after the other, so threads
// that wait at the same time want a Reader each. A Result belongs to one thread at a time and may end on any.
// Processes: a Reader and its Results are of no use in a child after fork; connect anew there.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gemmad {

/// Why there is no result. `code()` is for programs, `what()` for people.
/// From the library: "connect" (no daemon there, or none in time), "disconnected" (it went away), "protocol"
/// (it does not speak our version, or what it says cannot be true), "unresponsive" (no answer well after the
/// deadline). From the daemon: "deadline" (not published in time), "gone" (was published, is no more),
/// "bad_request", "too_many_clients", or the code with which the job failed.
class ReaderError : public std::runtime_error {
 public:
  ReaderError(std::string code, const std::string& message)
      : std::runtime_error(message), code_(std::move(code)) {}
  const std::string& code() const { return code_; }

 private:
  std::string code_;
};

/// A connection to a rank's reader socket, and the rank's segment mapped read-only. Movable.
class Reader {
  class Connection;

 public:
  /// One tensor, dense, last axis contiguous. `data` is in the mapped segment: valid while its Result lives.
  struct Tensor {
    std::string name;                 // "hidden_states.0"
    std::string dtype;                // "F32", "BF16", "F16", "I32" or "U8"
    std::vector<std::int64_t> shape;  // [n, D]: only real tokens, in order
    const void* data = nullptr;
    std::size_t size_bytes = 0;
    std::uint64_t offset = 0;  // of data in the segment, in bytes
  };

  /// One prompt of the request, in its order. When not ok, only the error fields count.
  struct Prompt {
    bool ok = false;
    std::string error_code;
    std::string error_message;
    std::int64_t num_tokens = 0;
    std::int64_t padded_length = 0;
    bool truncated = false;
    std::vector<Tensor> tensors;

    /// The tensor of that name, or null.
    const Tensor* find(std::string_view name) const;
  };

  /// A lease: the bytes stay as they are until it ends, by release(), destruction, or the end of this
  /// process. Keeps the mapping alive, also beyond its Reader. Movable, not copyable.
  class Result {
   public:
    Result(Result&& other) noexcept;
    Result& operator=(Result&& other) noexcept;
    Result(const Result&) = delete;
    Result& operator=(const Result&) = delete;
    ~Result();

    std::uint64_t job() const { return job_; }
    const std::vector<Prompt>& prompts() const { return prompts_; }
    /// Ends the lease; the tensors' data must not be read after. Does not wait for the daemon. Idempotent.
    void release() noexcept;

   private:
    friend class Reader;
    Result(std::shared_ptr<Connection> connection, std::uint64_t lease, std::uint64_t job,
           std::vector<Prompt> prompts);

    std::shared_ptr<Connection> connection_;  // null once released
    std::uint64_t lease_ = 0;
    std::uint64_t job_ = 0;
    std::vector<Prompt> prompts_;
  };

  /// Waits up to `timeout` for the daemon to come up, and maps its segment. Throws ReaderError.
  static Reader connect(const std::string& path, std::chrono::milliseconds timeout);

  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  /// Results that still live keep the connection.
  ~Reader();

  /// Waits up to `timeout` for the job's result, also when its request has not arrived yet. Throws
  /// ReaderError.
  Result acquire(std::uint64_t job, std::chrono::milliseconds timeout);
  /// The same by the name that the request carries.
  Result acquire_name(const std::string& name, std::chrono::milliseconds timeout);

  int rank() const;
  /// The whole segment, mapped read-only at one address as long as the Reader or a Result lives: what a CUDA
  /// process registers once (cudaHostRegisterReadOnly) to copy at full speed.
  const void* segment_data() const;
  std::size_t segment_bytes() const;

 private:
  explicit Reader(std::shared_ptr<Connection> connection);

  std::shared_ptr<Connection> connection_;
};

}  // namespace gemmad
