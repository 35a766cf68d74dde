#include "comm/peer_memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace gemmad {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t kAlignment = 256;
// In a rank's memory, after its buffers for addends.
constexpr int kSums = PeerBuffers::kNumBuffers;
constexpr int kSignals = kSums + 1;
constexpr std::size_t kEpochsOffset =
    sizeof(std::uint32_t) * PeerAddends::kMaxPeers * PeerAddends::kMaxBlocks;  // behind the signals
constexpr std::size_t kSignalBytes = kEpochsOffset + sizeof(std::uint32_t) * PeerAddends::kMaxBlocks;

void check_device(cudaError_t result, const char* call) {
  if (result != cudaSuccess) throw BootstrapError(std::string(call) + ": " + cudaGetErrorString(result));
}

std::size_t member_of(const Bootstrap& bootstrap, const std::vector<int>& ranks) {
  const auto own = std::find(ranks.begin(), ranks.end(), bootstrap.info().rank);
  if (own == ranks.end()) throw std::invalid_argument("a group that this rank is not a member of");
  return static_cast<std::size_t>(own - ranks.begin());
}

/// Every member's `mine`, member after member. Collective among `ranks`.
template <typename T>
std::vector<T> gather(Bootstrap& bootstrap, const std::vector<int>& ranks, const T& mine,
                      milliseconds timeout) {
  std::vector<T> all(ranks.size(), mine);
  std::vector<Outgoing> outgoing;
  std::vector<Incoming> incoming;
  for (std::size_t member = 0; member < ranks.size(); ++member) {
    if (ranks[member] == bootstrap.info().rank) continue;
    outgoing.push_back({ranks[member], std::as_bytes(std::span(&mine, 1))});
    incoming.push_back({ranks[member], std::as_writable_bytes(std::span(&all[member], 1))});
  }
  bootstrap.exchange(outgoing, incoming, timeout);
  return all;
}

/// Where a rank's device is.
struct Place {
  int node = 0;
  char bus_id[32] = {};
};

int current_device() {
  int device = 0;
  check_device(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

/// Whether the current device can read the one at `other`, as this process sees it.
bool can_read(const Place& other) {
  int device = 0;
  int can = 0;
  const bool known = cudaDeviceGetByPCIBusId(&device, other.bus_id) == cudaSuccess &&
                     cudaDeviceCanAccessPeer(&can, current_device(), device) == cudaSuccess;
  // A device that is not visible here is an answer, not an error to be found later.
  if (!known) cudaGetLastError();
  return known && can == 1;
}

}  // namespace

bool peers_can_share(Bootstrap& bootstrap, const std::vector<int>& ranks, milliseconds timeout) {
  const std::size_t own = member_of(bootstrap, ranks);
  Place mine{bootstrap.info().node, {}};
  check_device(cudaDeviceGetPCIBusId(mine.bus_id, sizeof mine.bus_id, current_device()),
               "cudaDeviceGetPCIBusId");
  const std::vector<Place> places = gather(bootstrap, ranks, mine, timeout);
  bool can = ranks.size() > 1 && ranks.size() <= std::size_t{PeerAddends::kMaxPeers};
  for (std::size_t member = 0; member < places.size(); ++member) {
    if (member == own) continue;
    can = can && places[member].node == mine.node && can_read(places[member]);
  }
  const std::vector<char> answers = gather(bootstrap, ranks, static_cast<char>(can), timeout);
  return std::all_of(answers.begin(), answers.end(), [](char answer) { return answer != 0; });
}

PeerBuffers::PeerBuffers(Bootstrap& bootstrap, std::vector<int> ranks, std::size_t buffer_bytes,
                         milliseconds timeout)
    : bootstrap_(bootstrap),
      ranks_(std::move(ranks)),
      own_(member_of(bootstrap, ranks_)),
      buffer_bytes_(buffer_bytes),
      stride_((buffer_bytes + kAlignment - 1) / kAlignment * kAlignment),
      timeout_(timeout) {
  if (ranks_.size() > memory_.size())
    throw std::invalid_argument("peer memory of " + std::to_string(ranks_.size()) + " members, more than " +
                                std::to_string(memory_.size()));
  allocate();
  map_others();
}

/// All in one allocation, which one handle stands for.
void PeerBuffers::allocate() {
  void* memory = nullptr;
  check_device(cudaMalloc(&memory, stride_ * kSignals + kSignalBytes), "cudaMalloc of peer memory");
  memory_[own_] = static_cast<std::byte*>(memory);
  check_device(cudaMemset(region(own_, kSignals), 0, kSignalBytes), "cudaMemset of peer memory");
  // Before anybody has the handle, and with it the signals.
  check_device(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void PeerBuffers::map_others() {
  cudaIpcMemHandle_t mine{};
  check_device(cudaIpcGetMemHandle(&mine, memory_[own_]), "cudaIpcGetMemHandle");
  const std::vector<cudaIpcMemHandle_t> handles = gather(bootstrap_, ranks_, mine, timeout_);
  for (std::size_t member = 0; member < ranks_.size(); ++member) {
    if (member == own_) continue;
    void* memory = nullptr;
    check_device(cudaIpcOpenMemHandle(&memory, handles[member], cudaIpcMemLazyEnablePeerAccess),
                 "cudaIpcOpenMemHandle");
    memory_[member] = static_cast<std::byte*>(memory);
  }
}

void PeerBuffers::close() {
  for (std::size_t member = 0; member < ranks_.size(); ++member) {
    std::byte* const memory = member == own_ ? nullptr : std::exchange(memory_[member], nullptr);
    if (memory != nullptr) check_device(cudaIpcCloseMemHandle(memory), "cudaIpcCloseMemHandle");
  }
  // Everybody has let go of this rank's memory once it has heard from everybody.
  gather(bootstrap_, ranks_, char{}, timeout_);
  check_device(cudaFree(std::exchange(memory_[own_], nullptr)), "cudaFree of peer memory");
}

PeerAddends PeerBuffers::addends(int which) const {
  PeerAddends result;
  result.num_peers = static_cast<int>(ranks_.size());
  result.own = static_cast<int>(own_);
  for (std::size_t member = 0; member < ranks_.size(); ++member) {
    result.addends[member] = region(member, which);
    result.sums[member] = region(member, kSums);
    result.signals[member] = reinterpret_cast<std::uint32_t*>(region(member, kSignals));
  }
  result.epochs = reinterpret_cast<std::uint32_t*>(region(own_, kSignals) + kEpochsOffset);
  result.two_steps_from_bytes = two_steps_from_bytes(result.num_peers);
  return result;
}

TensorView PeerBuffers::own(int which, DType dtype, const Shape& shape) const {
  const TensorView tensor{region(own_, which), dtype, shape};
  if (tensor.size_bytes() > buffer_bytes_)
    throw std::out_of_range("a tensor of " + shape.text() + " in a peer buffer of " +
                            std::to_string(buffer_bytes_) + " bytes");
  return tensor;
}

std::byte* PeerBuffers::region(std::size_t member, int number) const {
  return memory_[member] + stride_ * static_cast<std::size_t>(number);
}

}  // namespace gemmad
