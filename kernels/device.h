// A device that computes: its memory, its queues of work, and how work is repeated there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "kernels/base/memory.h"
#include "kernels/base/stream.h"
#include "kernels/base/tensor.h"

namespace gemmad {

/// Work that is put on a stream again and again, recorded where the device can repeat it faster than it can
/// be told anew. Made by a device, which must outlive it; gives back what it recorded. One caller at a time.
class Recordings {
 public:
  virtual ~Recordings() = default;
  /// Puts the work of `body` on `stream`: by calling it, or by repeating what it put there when it was called
  /// for the same `shape` and `step`. So that work must be the same ones every time, memory included, and on
  /// `stream` alone. The results are the same bytes either way. Shapes that have not come for long are
  /// forgotten. Throws what `body` throws.
  virtual void run(std::int64_t shape, std::int64_t step, Stream stream,
                   const std::function<void()>& body) = 0;
};

/// A point in the work on a stream: behind all that is on it when the moment is used, or where a mark was
/// set.
struct Moment {
  Stream stream;
  std::optional<std::size_t> mark = std::nullopt;
};

/// Memory of the device as a whole, whoever uses it.
struct DeviceMemoryBytes {
  std::uint64_t free = 0;
  std::uint64_t total = 0;
};

/// Used by one thread at a time.
class Device {
 public:
  virtual ~Device() = default;

  /// Device, numeric type and libraries, for the log: "CPU, fp32, OpenBLAS (Zen), 2 threads".
  virtual std::string description() const = 0;
  /// Type of weights and activations.
  virtual DType compute_dtype() const = 0;
  /// Where this device's tensors live.
  virtual std::shared_ptr<Memory> memory() = 0;
  /// Of a device with memory of its own; nothing where tensors live in the host's.
  virtual std::optional<DeviceMemoryBytes> memory_bytes() const = 0;

  /// Memory that operations keep for themselves from the first call on, bytes at most.
  virtual std::uint64_t scratch_bytes() const = 0;
  /// Gives that back until the next call. Recordings made before must not be run again. Blocks.
  virtual void drop_scratch() = 0;

  /// The stream that the engine computes on. Valid while this object lives.
  virtual Stream stream() = 0;
  /// Others, for what goes on beside, made when they are first asked for. Valid while this object lives.
  virtual Stream side_stream(std::size_t number) = 0;
  /// The one for copies to the host.
  Stream copy_stream() { return side_stream(0); }
  /// What is put on `waiting` from now on begins when all that is on `other` now is done. Does not block.
  virtual void wait_for(Stream waiting, Stream other) = 0;
  /// Sets a mark, numbered from 0, behind all that is on `stream` now. May be part of recorded work, which
  /// sets it anew every time. Does not block.
  virtual void set_mark(std::size_t number, Stream stream) = 0;
  /// The same for where that mark was last set.
  virtual void wait_for_mark(Stream waiting, std::size_t number) = 0;
  void wait_for(Stream waiting, const Moment& moment) {
    if (moment.mark) return wait_for_mark(waiting, *moment.mark);
    wait_for(waiting, moment.stream);
  }
  /// True when all work on `stream` is done. Throws when some of it failed.
  virtual bool is_done(Stream stream) = 0;
  /// Blocks until all work on `stream` is done.
  virtual void synchronize(Stream stream) = 0;

  virtual std::unique_ptr<Recordings> make_recordings() = 0;
  /// True where recordings make a difference, so that much work in few of them is best.
  virtual bool records_work() const = 0;

  /// Makes copies from and to `host` fast and asynchronous while the result lives; `host` must outlive it.
  /// Blocks, for large spans for seconds. An empty result where that changes nothing.
  virtual std::shared_ptr<void> pin(std::span<std::byte> host) = 0;

  /// The number of rows that a batch of `rows` is best filled up to, so that few different ones come. Not
  /// less than `rows`; rises with it.
  virtual std::int64_t padded_rows(std::int64_t rows) const = 0;
  /// The width that heads of `head_dim` are best filled up to, with zeros, for attention over many rows. Not
  /// less than `head_dim`.
  virtual std::int64_t padded_head_dim(std::int64_t head_dim) const { return head_dim; }
  /// Rows of activations below which a product costs about as much as with so many: less work than this is
  /// not worth a pass of its own.
  virtual std::int64_t efficient_rows() const = 0;
};

}  // namespace gemmad
