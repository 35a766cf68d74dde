#include "daemon/model/weight_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

#include "daemon/model/model_file_error.h"

namespace gemmad {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kTensorAlignmentBytes = 256;
constexpr std::uint64_t kPieceBytes = 4ull << 20;  // copied at once

std::uint64_t rounded_up(std::uint64_t bytes, std::uint64_t to) {
  return (bytes + to - 1) / to * to;
}

const std::string kName = "copy of the weights in shared memory (weights_cache node)";

}  // namespace

// The first page holds the count of bytes that are there, for whoever shows progress.
WeightCache::WeightCache(const WeightOrigin& origin) : total_bytes_(kPageBytes) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  for (const WeightEntry& entry : origin.entries()) {
    const Place place{total_bytes_, entry.dtype, entry.shape};
    places_.emplace(entry.name, place);
    size_bytes_ += place.size_bytes();
    total_bytes_ = rounded_up(total_bytes_ + place.size_bytes(), kTensorAlignmentBytes);
  }
  total_bytes_ = rounded_up(total_bytes_, kPageBytes);
}

WeightCache WeightCache::create(const WeightOrigin& origin) {
  WeightCache cache(origin);
  cache.memory_ = std::make_shared<SharedMemory>(SharedMemory::create(kName, cache.total_bytes_));
  cache.memory_->allocate(0, kPageBytes);
  new (cache.memory_->bytes().data()) std::atomic<std::uint64_t>(0);
  return cache;
}

WeightCache WeightCache::attach(const WeightOrigin& origin, const SharedMemory::Address& address) {
  WeightCache cache(origin);
  if (address.size_bytes != cache.total_bytes_) {
    throw ModelFileError(
        "the ranks of this node see different models: " + std::to_string(cache.total_bytes_) +
        " bytes here, " + std::to_string(address.size_bytes) + " on the node's first rank");
  }
  cache.memory_ = std::make_shared<SharedMemory>(SharedMemory::attach(kName, address));
  return cache;
}

std::atomic<std::uint64_t>& WeightCache::filled_bytes() const {
  return *std::launder(reinterpret_cast<std::atomic<std::uint64_t>*>(memory_->bytes().data()));
}

std::uint64_t WeightCache::fill(const WeightOrigin& origin, int part, int num_parts,
                                const FillProgress& progress) {
  const auto bound = [&](int i) {
    return kPageBytes + rounded_up((total_bytes_ - kPageBytes) * static_cast<std::uint64_t>(i) /
                                       static_cast<std::uint64_t>(num_parts),
                                   kPageBytes);
  };
  const std::uint64_t begin = bound(part);
  const std::uint64_t end = std::min(bound(part + 1), total_bytes_);
  memory_->allocate(begin, end);
  std::uint64_t copied_bytes = 0;
  // Parts and pieces are cut at multiples of whole elements, as every tensor begins at one.
  for (const auto& [name, place] : places_) {
    const std::uint64_t last = std::min(end, place.offset + place.size_bytes());
    for (std::uint64_t at = std::max(begin, place.offset); at < last;) {
      const std::uint64_t count = std::min(kPieceBytes, last - at);
      origin.read(name, at - place.offset, memory_->bytes().subspan(at, count));
      at += count;
      copied_bytes += count;
      filled_bytes() += count;
      if (progress) progress(filled_bytes(), size_bytes_);
    }
  }
  return copied_bytes;
}

void WeightCache::seal() {
  memory_->protect();
  memory_->let_pages_go(memory_->bytes());
}

HostTensor WeightCache::tensor(std::string_view name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) throw ModelFileError("no tensor '" + std::string(name) + "' among the weights");
  const Place& place = found->second;
  return {{memory_->bytes().data() + place.offset, place.dtype, place.shape}, memory_};
}

// The pages are the node's and cost this process nothing but their table; to let them go takes 60 ms a GB,
// and the next load would have to find them again.
void WeightCache::release(const HostTensor&) const {}

}  // namespace gemmad
