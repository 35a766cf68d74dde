// How the devices of one node read each other's addends of a sum, without a library between them.
#pragma once

#include <cstdint>
#include <limits>

namespace gemmad {

/// The addends of one sum over the members of a group, one device each. Every pointer is valid on this
/// device: what lies on another is mapped here. Only views; who made it owns the memory (comm/peer_memory.h).
///
/// A device writes its own addend by kernels before the one that sums, on the same stream, and the latter
/// begins with a meeting: block b of each member
///   1. waits for all earlier work of its own stream, so its addend is complete;
///   2. stores epochs[b] + 1 into signals[own][b] at every other member, releasing at system scope;
///   3. waits until signals[r][b] in its own memory has come to that for every other member r, acquiring;
///   4. stores epochs[b] + 1 into epochs[b]. Counters wrap around.
/// So every member must start the same sums in the same order, with the same N, D and number of members, and
/// two sums that follow one another need different addends: those of one may be written again once this
/// device has met the others for the next one, which none of them begins before it has read the former.
///
/// Large sums of more than two members go in two steps, so that each link carries less: each member sums its
/// part of the rows and writes it into all members' `sums`; they meet again, and read their own.
///
/// Nothing here has a deadline: a member whose peer died waits for it on the device, for good. Whoever
/// watches the stream (Collectives::wait) must then end the process, without waiting for the device.
struct PeerAddends {
  static constexpr int kMaxPeers = 8;
  static constexpr int kMaxBlocks = 256;

  int num_peers = 0;                       // R, the members, this one among them
  int own = 0;                             // which one this is
  const void* addends[kMaxPeers] = {};     // by member: [N, D] of the compute type, aligned to 16 bytes
  void* sums[kMaxPeers] = {};              // by member: room for [N, D], aligned to 16 bytes
  std::uint32_t* signals[kMaxPeers] = {};  // by member: what the others say to it, [kMaxPeers][kMaxBlocks]
  std::uint32_t* epochs = nullptr;         // this device's meetings so far, [kMaxBlocks]
  // Sums of at least so many bytes go in two steps. The same at all members.
  std::int64_t two_steps_from_bytes = std::numeric_limits<std::int64_t>::max();
};

}  // namespace gemmad
