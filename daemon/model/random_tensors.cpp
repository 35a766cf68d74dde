#include "daemon/model/random_tensors.h"

#include <algorithm>
#include <memory>

#include "daemon/model/in_parts.h"
#include "daemon/model/model_file_error.h"
#include "kernels/base/float_formats.h"

namespace gemmad {
namespace {

constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;
constexpr std::uint64_t kMean = 131070;  // of the sum of four numbers from 0 to 65535
// 0.02 over that sum's deviation, sqrt((2^32 - 1) / 3), rounded to fp32.
constexpr float kScale = 0x1.1bc77ap-21f;
// Fewer elements are made sooner than a thread starts.
constexpr std::size_t kElementsPerThread = std::size_t{1} << 17;

constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text)
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return hash;
}

/// The four 16-bit quarters of `hash`, summed.
constexpr std::uint64_t sum_of_quarters(std::uint64_t hash) {
  constexpr std::uint64_t kEvenQuarters = 0x0000ffff0000ffff;
  const std::uint64_t pairs = (hash & kEvenQuarters) + ((hash >> 16) & kEvenQuarters);
  return (pairs + (pairs >> 32)) & 0xffffffff;
}

}  // namespace

RandomValues::RandomValues(std::uint64_t seed, std::string_view name) : key_(mix(mix(seed) ^ fnv1a(name))) {}

void RandomValues::fill(std::uint64_t first, std::span<std::uint16_t> to) const {
  std::uint64_t state = key_ + first * kStep;
  for (std::uint16_t& bits : to) {
    state += kStep;
    const auto centred = static_cast<std::int32_t>(sum_of_quarters(mix(state)) - kMean);
    bits = f32_to_bf16(static_cast<float>(centred) * kScale);
  }
}

void RandomValues::fill(std::uint64_t first, std::span<std::uint16_t> to, int num_threads) const {
  const std::size_t parts =
      std::clamp<std::size_t>(to.size() / kElementsPerThread, 1, static_cast<std::size_t>(num_threads));
  in_parts(to.size(), parts,
           [&](std::size_t begin, std::size_t count) { fill(first + begin, to.subspan(begin, count)); });
}

HostTensor RandomTensors::tensor(std::string_view name) const {
  const Shape& shape = shape_of(name);
  const auto size = static_cast<std::size_t>(shape.num_elements());
  const auto values = std::make_shared_for_overwrite<std::uint16_t[]>(size);
  make(name, shape, 0, {values.get(), size});
  return {{values.get(), DType::kBF16, shape}, values};
}

std::vector<WeightEntry> RandomTensors::entries() const {
  std::vector<WeightEntry> entries;
  for (const auto& [name, shape] : shapes_)
    entries.push_back({name, DType::kBF16, shape});
  return entries;
}

void RandomTensors::read(std::string_view name, std::uint64_t offset, std::span<std::byte> to) const {
  constexpr std::size_t kElementBytes = sizeof(std::uint16_t);
  make(name, shape_of(name), offset / kElementBytes,
       {reinterpret_cast<std::uint16_t*>(to.data()), to.size() / kElementBytes});
}

void RandomTensors::add(const std::string& name, const Shape& shape) {
  if (shapes_.emplace(name, shape).second)
    size_bytes_ += ConstTensorView{nullptr, DType::kBF16, shape}.size_bytes();
}

void RandomTensors::fill(std::string_view name, std::uint64_t first, std::span<std::uint16_t> to) const {
  RandomValues(seed_, name).fill(first, to, num_threads_);
}

const Shape& RandomTensors::shape_of(std::string_view name) const {
  const auto found = shapes_.find(name);
  if (found == shapes_.end()) throw ModelFileError("no tensor '" + std::string(name) + "' in the model");
  return found->second;
}

}  // namespace gemmad
