#include "daemon/ctl/encode_file/read_metadata.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/base/file_descriptor.h"

namespace gemmad {

namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxHeaderBytes = 16 << 20;  // of files that gemmactl wrote, by far
constexpr std::uint64_t kSizeBytes = 8;

/// Whether `size` bytes could be read from the front of what is left.
bool read_all(int fd, char* bytes, std::size_t size, const std::string& file) {
  while (size > 0) {
    const auto got = ::read(fd, bytes, size);
    if (got < 0 && errno == EINTR) continue;
    if (check_system(got, "read " + file) == 0) return false;
    bytes += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

std::uint64_t end_of_data(const json& header) {
  std::uint64_t end = 0;
  for (const auto& [name, tensor] : header.items()) {
    if (name != "__metadata__") end = std::max(end, tensor.at("data_offsets").at(1).get<std::uint64_t>());
  }
  return end;
}

}  // namespace

MetadataOfFile read_metadata(const std::filesystem::path& file) {
  using Kind = MetadataOfFile::Kind;
  const FileDescriptor fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd && errno == ENOENT) return {Kind::kMissing, {}};
  check_system(fd.get(), "open " + file.string());
  struct stat status {};
  check_system(::fstat(fd.get(), &status), "look at " + file.string());
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);

  std::uint64_t header_bytes = 0;
  if (!read_all(fd.get(), reinterpret_cast<char*>(&header_bytes), kSizeBytes, file.string()) ||
      header_bytes > std::min(kMaxHeaderBytes, file_bytes)) {
    return {Kind::kSpoiled, {}};
  }
  std::string text(header_bytes, '\0');
  if (!read_all(fd.get(), text.data(), text.size(), file.string())) return {Kind::kSpoiled, {}};
  try {
    const json header = json::parse(text);
    if (file_bytes != kSizeBytes + header_bytes + end_of_data(header)) return {Kind::kSpoiled, {}};
    MetadataOfFile found{Kind::kWhole, {}};
    if (header.contains("__metadata__")) header["__metadata__"].get_to(found.metadata);
    return found;
  } catch (const json::exception&) {
    return {Kind::kSpoiled, {}};
  }
}

}  // namespace gemmad
