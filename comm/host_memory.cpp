#include "comm/host_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gemmad {
namespace {

std::optional<std::uint64_t> parse_number(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + first, text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

/// The number after `key` in the line that begins with it.
std::optional<std::uint64_t> read_field(const std::string& file_name, std::string_view key) {
  std::ifstream file(file_name);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return parse_number(std::string_view(line).substr(key.size()));
  }
  return std::nullopt;
}

std::optional<std::uint64_t> read_number(const std::string& file_name) {
  return read_field(file_name, "");
}

/// What one control group leaves. A file that is missing or says "max" limits nothing.
std::optional<std::uint64_t> left_in_group(const std::string& folder, const char* limit_file,
                                           const char* usage_file, const char* inactive_key) {
  const auto limit = read_number(folder + limit_file);
  const auto usage = read_number(folder + usage_file);
  if (!limit || !usage) return std::nullopt;
  // The kernel drops such pages by itself before it refuses memory.
  const std::uint64_t droppable = read_field(folder + "/memory.stat", inactive_key).value_or(0);
  const std::uint64_t held = *usage - std::min(droppable, *usage);
  return *limit - std::min(held, *limit);
}

/// The path of this process in the hierarchy that `line_key` names in /proc/self/cgroup.
std::string group_path(std::string_view line_key) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t at = line.find(line_key);
    if (at != std::string::npos) return line.substr(at + line_key.size());
  }
  return "/";
}

/// The least that this group and those above it leave.
std::optional<std::uint64_t> left_in_groups(const std::string& root, std::string path, const char* limit_file,
                                            const char* usage_file, const char* inactive_key) {
  std::optional<std::uint64_t> least;
  while (true) {
    const auto left = left_in_group(root + path, limit_file, usage_file, inactive_key);
    if (left) least = std::min(*left, least.value_or(*left));
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return least;
    path.resize(slash);
  }
}

}  // namespace

std::uint64_t available_memory_bytes() {
  const auto available_kib = read_field("/proc/meminfo", "MemAvailable:");
  if (!available_kib) throw std::runtime_error("/proc/meminfo names no MemAvailable");
  std::uint64_t available = *available_kib * 1024;
  if (const auto left = left_in_groups("/sys/fs/cgroup", group_path("0::"), "/memory.max", "/memory.current",
                                       "inactive_file ")) {
    available = std::min(available, *left);
  }
  if (const auto left =
          left_in_groups("/sys/fs/cgroup/memory", group_path(":memory:"), "/memory.limit_in_bytes",
                         "/memory.usage_in_bytes", "total_inactive_file ")) {
    available = std::min(available, *left);
  }
  return available;
}

}  // namespace gemmad
