// A file that is there whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "kernels/base/file_descriptor.h"

namespace gemmad {

/// Written under a temporary name beside the final one, which it takes with commit(). Without that it is
/// removed; a process that is killed leaves it behind. Nothing is forced to the disk: after a loss of power a
/// committed file may be short. Blocks on the disk. Errors are SystemError.
class WholeFile {
 public:
  explicit WholeFile(std::filesystem::path final_name);
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  ~WholeFile();

  void write(const void* data, std::size_t size_bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Takes the place of a file that has the name already. At most once.
  void commit();

 private:
  std::filesystem::path final_name_;
  std::string temporary_name_;  // empty once committed
  FileDescriptor fd_;
};

/// Whether a file of that name, a path's last part, is what a killed process left of a WholeFile.
bool is_temporary_name(std::string_view file_name);

}  // namespace gemmad
