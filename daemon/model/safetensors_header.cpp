#include "daemon/model/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <utility>

#include "config/config_error.h"
#include "daemon/model/file_sniff.h"
#include "daemon/model/safetensors_json.h"

namespace gemmad {
namespace {

constexpr std::uint64_t kLengthBytes = 8;

constexpr std::array kDTypes = {
    SafetensorsDType{"BF16", 16, DType::kBF16},   SafetensorsDType{"F16", 16, DType::kF16},
    SafetensorsDType{"F32", 32, DType::kF32},     SafetensorsDType{"I32", 32, DType::kI32},
    SafetensorsDType{"U8", 8, DType::kU8},        SafetensorsDType{"BOOL", 8, std::nullopt},
    SafetensorsDType{"I8", 8, std::nullopt},      SafetensorsDType{"I16", 16, std::nullopt},
    SafetensorsDType{"U16", 16, std::nullopt},    SafetensorsDType{"U32", 32, std::nullopt},
    SafetensorsDType{"I64", 64, std::nullopt},    SafetensorsDType{"U64", 64, std::nullopt},
    SafetensorsDType{"F64", 64, std::nullopt},    SafetensorsDType{"F8_E4M3", 8, std::nullopt},
    SafetensorsDType{"F8_E5M2", 8, std::nullopt}, SafetensorsDType{"F8_E8M0", 8, std::nullopt},
    SafetensorsDType{"F6_E2M3", 6, std::nullopt}, SafetensorsDType{"F6_E3M2", 6, std::nullopt},
    SafetensorsDType{"F4", 4, std::nullopt},      SafetensorsDType{"C64", 64, std::nullopt},
};

std::uint64_t read_little_endian(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  return value;
}

// One tensor's checks; messages name file and tensor.
class EntryReader {
 public:
  EntryReader(const RawTensorEntry& raw, const std::string& source_name)
      : raw_(raw), source_name_(source_name) {}

  // `data_begin`, `data_size`: bytes, where the tensors lie in the file.
  SafetensorsEntry read(std::uint64_t data_begin, std::uint64_t data_size) const {
    if (raw_.offsets.size() != 2)
      fail("data_offsets has " + std::to_string(raw_.offsets.size()) + " numbers, must have 2");
    const std::uint64_t begin = raw_.offsets[0];
    const std::uint64_t end = raw_.offsets[1];
    if (begin > end || end > data_size) {
      fail("data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) +
           "] lie outside the file's " + std::to_string(data_size) +
           " bytes of data; the file is cut short or damaged");
    }
    const SafetensorsDType dtype = find_dtype();
    const std::uint64_t size = tensor_bytes(dtype);
    if (size != end - begin) {
      fail("shape and type need " + std::to_string(size) + " bytes, data_offsets hold " +
           std::to_string(end - begin));
    }
    SafetensorsEntry entry{raw_.name, dtype, {}, data_begin + begin, data_begin + end};
    for (std::uint64_t extent : raw_.shape)
      entry.shape.push_back(static_cast<std::int64_t>(extent));
    return entry;
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw ModelFileError(source_name_ + ": tensor '" + printable(raw_.name, 200) + "': " + problem);
  }

  SafetensorsDType find_dtype() const {
    const auto* found = std::find_if(kDTypes.begin(), kDTypes.end(),
                                     [&](const SafetensorsDType& dtype) { return dtype.name == raw_.dtype; });
    if (found == kDTypes.end()) fail("unknown dtype '" + printable(raw_.dtype) + "'");
    return *found;
  }

  std::uint64_t tensor_bytes(const SafetensorsDType& dtype) const {
    // Products of elements stay below 2^57, so that the bits fit; a zero anywhere makes the tensor empty.
    constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 57;
    std::uint64_t elements = 1;
    const bool empty = std::find(raw_.shape.begin(), raw_.shape.end(), 0u) != raw_.shape.end();
    for (std::uint64_t extent : raw_.shape) {
      if (extent > kMaxElements || (!empty && extent > kMaxElements / elements)) fail("its shape overflows");
      if (!empty) elements *= extent;
    }
    const std::uint64_t bits = empty ? 0 : elements * dtype.size_bits;
    if (bits % 8 != 0) fail("its bits do not fill whole bytes");
    return bits / 8;
  }

  const RawTensorEntry& raw_;
  const std::string& source_name_;
};

void check_order(const std::vector<SafetensorsEntry>& tensors, std::uint64_t data_begin,
                 std::uint64_t file_size, const std::string& source_name) {
  std::uint64_t filled = data_begin;
  for (const SafetensorsEntry& tensor : tensors) {
    const std::string name = "tensor '" + printable(tensor.name, 200) + "'";
    if (tensor.begin < filled)
      throw ModelFileError(source_name + ": " + name + " overlaps the one before it");
    if (tensor.begin > filled) {
      throw ModelFileError(source_name + ": " + std::to_string(tensor.begin - filled) + " bytes before " +
                           name + " belong to no tensor");
    }
    filled = tensor.end;
  }
  if (filled != file_size) {
    throw ModelFileError(source_name + ": " + std::to_string(file_size - filled) +
                         " trailing bytes belong to no tensor");
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, const std::string& source_name) {
  if (const auto reason = foreign_content(file)) throw ModelFileError(source_name + ": " + *reason);
  if (file.size() < kLengthBytes) {
    throw ModelFileError(source_name + ": " + std::to_string(file.size()) +
                         " bytes are too few for a safetensors file; it is cut short");
  }
  const std::uint64_t header_size = read_little_endian(file);
  if (header_size > kMaxSafetensorsHeaderBytes) {
    throw ModelFileError(source_name + ": the header claims " + std::to_string(header_size) +
                         " bytes, above the limit of " + std::to_string(kMaxSafetensorsHeaderBytes) +
                         "; this is no safetensors file");
  }
  if (header_size > file.size() - kLengthBytes) {
    throw ModelFileError(source_name + ": the header claims " + std::to_string(header_size) +
                         " bytes, the file has only " + std::to_string(file.size() - kLengthBytes) +
                         " after its length; it is cut short");
  }
  const std::uint64_t data_begin = kLengthBytes + header_size;
  RawSafetensorsHeader raw = parse_safetensors_json(file.subspan(kLengthBytes, header_size), source_name);

  SafetensorsHeader header;
  header.metadata = std::move(raw.metadata);
  header.tensors.reserve(raw.tensors.size());
  for (const RawTensorEntry& entry : raw.tensors) {
    header.tensors.push_back(EntryReader(entry, source_name).read(data_begin, file.size() - data_begin));
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  check_order(header.tensors, data_begin, file.size(), source_name);
  return header;
}

}  // namespace gemmad
