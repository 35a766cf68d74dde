#include "daemon/model/file_sniff.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace gemmad {
namespace {

constexpr std::size_t kLookedAtBytes = 256;

bool begins_with_any_case(std::string_view text, std::string_view lower_prefix) {
  return text.size() >= lower_prefix.size() &&
         std::equal(lower_prefix.begin(), lower_prefix.end(), text.begin(), [](char expected, char found) {
           return expected == static_cast<char>(std::tolower(static_cast<unsigned char>(found)));
         });
}

}  // namespace

std::optional<std::string> foreign_content(std::span<const std::byte> bytes) {
  if (bytes.empty()) return "the file is empty (0 bytes); download it again";
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kLookedAtBytes));
  if (text.starts_with("version https://git-lfs.github.com/spec/")) {
    return "this is a git-LFS pointer, not the file itself; fetch it with 'git lfs pull'";
  }
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  if (begins_with_any_case(text, "<!doctype html") || begins_with_any_case(text, "<html")) {
    return "this is an HTML page, not the file itself; the download was answered by a web page";
  }
  return std::nullopt;
}

}  // namespace gemmad
