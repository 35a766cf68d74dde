#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "comm/collectives.h"

namespace gemmad {

namespace {

std::span<std::byte> bytes_of(const TensorView& tensor) {
  return {tensor.as<std::byte>(), tensor.size_bytes()};
}

std::span<const std::byte> bytes_of(const ConstTensorView& tensor) {
  return {tensor.as<std::byte>(), tensor.size_bytes()};
}

class HostCollectives final : public Collectives {
 public:
  HostCollectives(Bootstrap& bootstrap, std::vector<int> ranks, std::chrono::milliseconds timeout)
      : bootstrap_(bootstrap), ranks_(std::move(ranks)), timeout_(timeout) {
    const auto own = std::find(ranks_.begin(), ranks_.end(), bootstrap.info().rank);
    if (own == ranks_.end()) throw std::invalid_argument("a group that this rank is not a member of");
    index_ = static_cast<std::size_t>(own - ranks_.begin());
  }

  /// A binomial tree: the member at distance d from the root has it from the one at d less its highest bit.
  void broadcast(TensorView tensor, int root, Stream) override {
    const std::size_t size = ranks_.size();
    const std::size_t distance = (index_ + size - static_cast<std::size_t>(root)) % size;
    const auto rank_at = [&](std::size_t d) { return ranks_[(d + static_cast<std::size_t>(root)) % size]; };
    std::size_t step = 1;
    for (; step <= distance; step *= 2) {
      if (distance < 2 * step) exchange({}, {{rank_at(distance - step), bytes_of(tensor)}});
    }
    std::vector<Outgoing> outgoing;
    for (; distance + step < size; step *= 2)
      outgoing.push_back({rank_at(distance + step), bytes_of(ConstTensorView(tensor))});
    exchange(outgoing, {});
  }

  /// Each member sums one part of all tensors and hands it out.
  void all_reduce(TensorView tensor, Stream) override {
    if (tensor.dtype != DType::kF32) throw std::invalid_argument("all_reduce sums F32 alone");
    const std::span<float> values(tensor.as<float>(), tensor.size_bytes() / sizeof(float));
    const std::size_t own_size = part(values, index_).size();
    parts_.resize(own_size * ranks_.size());
    const auto received = [&](std::size_t member) {
      return std::span(parts_).subspan(member * own_size, own_size);
    };

    exchange_with_others([&](std::size_t member) { return part(values, member); }, received);
    const std::span<float> own = part(values, index_);
    std::copy(own.begin(), own.end(), received(index_).begin());
    for (std::size_t i = 0; i < own_size; ++i) {
      float sum = parts_[i];
      for (std::size_t member = 1; member < ranks_.size(); ++member)
        sum += parts_[member * own_size + i];
      own[i] = sum;
    }
    exchange_with_others([&](std::size_t) { return own; },
                         [&](std::size_t member) { return part(values, member); });
  }

  void all_gather(ConstTensorView mine, TensorView all, Stream) override {
    const std::size_t size = mine.size_bytes();
    if (all.dtype != mine.dtype || all.size_bytes() != size * ranks_.size())
      throw std::invalid_argument("all_gather needs room for what each member has");
    const auto place = [&](std::size_t member) { return bytes_of(all).subspan(member * size, size); };
    if (size != 0) std::memmove(place(index_).data(), mine.data, size);
    exchange_with_others([&](std::size_t) { return place(index_); }, place);
  }

  void send(ConstTensorView tensor, int to, Stream) override {
    exchange({{ranks_.at(static_cast<std::size_t>(to)), bytes_of(tensor)}}, {});
  }

  void receive(TensorView tensor, int from, Stream) override {
    exchange({}, {{ranks_.at(static_cast<std::size_t>(from)), bytes_of(tensor)}});
  }

 private:
  void exchange(const std::vector<Outgoing>& outgoing, const std::vector<Incoming>& incoming) {
    bootstrap_.exchange(outgoing, incoming, timeout_);
  }

  /// Sends part_for(member) to every other member and receives part_from(member) from it.
  template <typename PartFor, typename PartFrom>
  void exchange_with_others(const PartFor& part_for, const PartFrom& part_from) {
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    for (std::size_t member = 0; member < ranks_.size(); ++member) {
      if (member == index_) continue;
      outgoing.push_back({ranks_[member], std::as_bytes(part_for(member))});
      incoming.push_back({ranks_[member], std::as_writable_bytes(part_from(member))});
    }
    exchange(outgoing, incoming);
  }

  /// What `member` sums.
  std::span<float> part(std::span<float> values, std::size_t member) const {
    const std::size_t begin = values.size() * member / ranks_.size();
    const std::size_t end = values.size() * (member + 1) / ranks_.size();
    return values.subspan(begin, end - begin);
  }

  Bootstrap& bootstrap_;
  std::vector<int> ranks_;
  std::size_t index_ = 0;
  std::chrono::milliseconds timeout_;
  std::vector<float> parts_;  // of all members, what this one sums
};

}  // namespace

Transport host_transport(Bootstrap& bootstrap) {
  return {"host (MPI)", [&bootstrap](std::vector<int> ranks, std::chrono::milliseconds timeout) {
            return std::make_unique<HostCollectives>(bootstrap, std::move(ranks), timeout);
          }};
}

}  // namespace gemmad
