// From the device memory of the rank that computed a result to the segments of those that publish it, beside
// the computation of the next ones.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/collectives.h"
#include "comm/route.h"
#include "daemon/model/text_workspace.h"
#include "kernels/ops.h"

namespace gemmad {

/// Rows of a result and a place on the host for some of them. Nothing is owned.
struct DeliveredRows {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  std::byte* destination = nullptr;  // [num_rows, width], pinned
};

/// Every route that this rank takes part in has a stream and a group of its own: transfers of one route
/// follow one another, those of different ones do not wait for each other. Source and receivers of a route
/// make the same calls for it in the same order. Used by the engine thread alone.
class DeviceDelivery {
 public:
  /// Collective: every rank makes it from the same routes. `device_results` makes groups on device memory;
  /// `max_width`: of a row. Throws BootstrapError, std::bad_alloc.
  DeviceDelivery(const RouteTable& routes, const Transport& device_results, std::int64_t max_width, int rank,
                 std::chrono::milliseconds timeout, Ops& ops);

  bool sends(std::size_t route) const { return links_[route] && links_[route]->is_source; }
  bool receives(std::size_t route) const { return links_[route] && !links_[route]->is_source; }

  /// Source: hands rows [first_row, first_row + num_rows) of `x` [N, width] to the receivers, from `ready`
  /// on. Does not block.
  void send(std::size_t route, ConstTensorView x, std::int64_t first_row, std::int64_t num_rows,
            const Moment& ready);
  /// What is put on `stream` from now on begins when everything sent so far has left.
  void hold(Stream stream);
  /// Receiver: takes those rows, `width` wide, and puts `pieces` of them in their places. Not before `gate`.
  /// A source that sends rows in several calls cuts them at multiples of kChunkRows from the first one. Does
  /// not block.
  void receive(std::size_t route, std::int64_t width, std::int64_t first_row, std::int64_t num_rows,
               const std::vector<DeliveredRows>& pieces, const std::optional<Moment>& gate);
  /// Rows that travel at once: a prompt at most, and as many as keep the links busy.
  static constexpr std::int64_t kChunkRows = kPaddedLength;
  /// Blocks until all of it is done. Throws BootstrapError when it does not come to an end in time.
  void wait();

  /// Device memory that one receiving route takes.
  static std::uint64_t staging_bytes(std::int64_t max_width, const Ops& ops);

 private:
  struct Link {
    std::unique_ptr<Collectives> group;
    Stream stream;
    bool is_source;
    Buffer staging;        // of a receiver: [kChunkRows, max_width]
    bool is_used = false;  // since wait()
    bool is_held = true;   // by what hold() was called for
  };

  /// Calls step(first row, number of rows) for runs that fit the staging memory.
  template <typename Step>
  static void in_chunks(std::int64_t first_row, std::int64_t num_rows, const Step& step);
  /// `staged` [num_rows, width]: rows from first_row on.
  void put(const Link& link, ConstTensorView staged, std::int64_t first_row,
           const std::vector<DeliveredRows>& pieces);

  Ops& ops_;
  std::vector<std::optional<Link>> links_;  // by route
};

}  // namespace gemmad
