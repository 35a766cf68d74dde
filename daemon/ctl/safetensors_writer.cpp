#include "daemon/ctl/safetensors_writer.h"

#include <fcntl.h>

#include <nlohmann/json.hpp>

#include "kernels/base/file_descriptor.h"

namespace gemmad {

namespace {

void write_all(int fd, const void* data, std::size_t size, const std::string& file) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const auto written = ::write(fd, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    check_system(written, "write " + file);
    bytes += written;
    size -= static_cast<std::size_t>(written);
  }
}

std::string header_text(const std::vector<TensorToWrite>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = {{"__metadata__", metadata}};
  std::uint64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.size_bytes}}};
    offset += tensor.size_bytes;
  }
  std::string text = header.dump();
  // Data begins at a multiple of 8, so that readers can map it as floats.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

/// Removes the temporary file unless it was given its name.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& final_name)
      : name_(final_name.string() + ".part." + std::to_string(::getpid())),
        fd_(check_system(::open(name_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644),
                         "create " + name_)) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (!name_.empty()) ::unlink(name_.c_str());
  }

  int fd() const { return fd_.get(); }
  const std::string& name() const { return name_; }
  void become(const std::filesystem::path& final_name) {
    check_system(::rename(name_.c_str(), final_name.c_str()),
                 "rename " + name_ + " to " + final_name.string());
    name_.clear();
  }

 private:
  std::string name_;
  FileDescriptor fd_;
};

}  // namespace

void write_safetensors(const std::filesystem::path& file, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  TemporaryFile temporary(file);
  const std::string header = header_text(tensors, metadata);
  const std::uint64_t header_bytes = header.size();
  write_all(temporary.fd(), &header_bytes, sizeof header_bytes, temporary.name());
  write_all(temporary.fd(), header.data(), header.size(), temporary.name());
  for (const TensorToWrite& tensor : tensors)
    write_all(temporary.fd(), tensor.data, tensor.size_bytes, temporary.name());
  temporary.become(file);
}

}  // namespace gemmad
