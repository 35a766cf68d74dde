#include "daemon/device_delivery.h"

#include <algorithm>
#include <utility>

namespace gemmad {

DeviceDelivery::DeviceDelivery(const RouteTable& routes, const Transport& device_results,
                               std::int64_t max_width, int rank, std::chrono::milliseconds timeout, Ops& ops)
    : ops_(ops) {
  links_.resize(routes.routes().size());
  for (std::size_t route = 0; route < links_.size(); ++route) {
    const std::vector<int> members = routes.routes()[route].members();
    if (std::find(members.begin(), members.end(), rank) == members.end()) continue;
    const bool is_source = members.front() == rank;
    Buffer staging;
    if (!is_source) staging = Buffer(ops.memory(), staging_bytes(max_width, ops));
    links_[route].emplace(Link{device_results.group(members, timeout), ops.side_stream(1 + route), is_source,
                               std::move(staging)});
  }
}

std::uint64_t DeviceDelivery::staging_bytes(std::int64_t max_width, const Ops& ops) {
  return static_cast<std::uint64_t>(kChunkRows * max_width) * gemmad::size_bytes(ops.compute_dtype());
}

template <typename Step>
void DeviceDelivery::in_chunks(std::int64_t first_row, std::int64_t num_rows, const Step& step) {
  for (std::int64_t row = 0; row < num_rows; row += kChunkRows)
    step(first_row + row, std::min(kChunkRows, num_rows - row));
}

void DeviceDelivery::send(std::size_t route, ConstTensorView x, std::int64_t first_row, std::int64_t num_rows,
                          const Moment& ready) {
  Link& link = *links_[route];
  const std::int64_t width = x.shape[1];
  const auto row_bytes = static_cast<std::int64_t>(gemmad::size_bytes(x.dtype)) * width;
  ops_.wait_for(link.stream, ready);
  in_chunks(first_row, num_rows, [&](std::int64_t first, std::int64_t count) {
    // A broadcast does not write its source.
    auto* const rows = static_cast<std::byte*>(const_cast<void*>(x.data)) + first * row_bytes;
    link.group->broadcast({rows, x.dtype, {count, width}}, 0, link.stream);
  });
  link.is_used = true;
  link.is_held = false;
}

void DeviceDelivery::hold(Stream stream) {
  for (auto& link : links_) {
    if (!link || link->is_held) continue;
    ops_.wait_for(stream, link->stream);
    link->is_held = true;
  }
}

void DeviceDelivery::receive(std::size_t route, std::int64_t width, std::int64_t first_row,
                             std::int64_t num_rows, const std::vector<DeliveredRows>& pieces,
                             const std::optional<Moment>& gate) {
  Link& link = *links_[route];
  if (gate) ops_.wait_for(link.stream, *gate);
  in_chunks(first_row, num_rows, [&](std::int64_t first, std::int64_t count) {
    const TensorView staged = link.staging.view(ops_.compute_dtype(), {count, width});
    link.group->broadcast(staged, 0, link.stream);
    put(link, staged, first, pieces);
  });
  link.is_used = true;
}

void DeviceDelivery::put(const Link& link, ConstTensorView staged, std::int64_t first_row,
                         const std::vector<DeliveredRows>& pieces) {
  const std::int64_t num_rows = staged.shape[0], width = staged.shape[1];
  const auto row_bytes = static_cast<std::int64_t>(gemmad::size_bytes(staged.dtype)) * width;
  for (const DeliveredRows& piece : pieces) {
    const std::int64_t begin = std::max(first_row, piece.first_row);
    const std::int64_t end = std::min(first_row + num_rows, piece.first_row + piece.num_rows);
    if (begin >= end) continue;
    const auto* const from = staged.as<std::byte>() + (begin - first_row) * row_bytes;
    const Shape shape{end - begin, width};
    ops_.copy_to_host({piece.destination + (begin - piece.first_row) * row_bytes, staged.dtype, shape},
                      {from, staged.dtype, shape}, link.stream);
  }
}

void DeviceDelivery::wait() {
  for (auto& link : links_) {
    if (!link || !link->is_used) continue;
    link->group->wait(link->stream);
    link->is_used = false;
  }
}

}  // namespace gemmad
