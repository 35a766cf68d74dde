#include "daemon/ctl/encode_file/display.h"

#include <unistd.h>

#include <cstdio>

namespace gemmad {

namespace {

constexpr int kBarWidth = 24;
constexpr const char* kBackAndClear = "\r\033[K";

}  // namespace

Display::Display() : terminal_(::isatty(STDERR_FILENO) == 1) {}

void Display::show(const ProgressCounts& counts, std::chrono::duration<double> elapsed) {
  const std::string text = progress_text(counts, elapsed);
  const std::lock_guard lock(mutex_);
  if (terminal_) {
    std::fprintf(stderr, "%s%s %s", kBackAndClear, progress_bar(counts, kBarWidth).c_str(), text.c_str());
  } else {
    std::fprintf(stderr, "gemmactl: %s\n", text.c_str());
  }
}

void Display::say(const std::string& line) {
  const std::lock_guard lock(mutex_);
  std::fprintf(stderr, "%s%s\n", terminal_ ? kBackAndClear : "", line.c_str());
}

void Display::clear() {
  const std::lock_guard lock(mutex_);
  if (terminal_) std::fprintf(stderr, "%s", kBackAndClear);
}

std::chrono::milliseconds Display::every() const {
  using namespace std::chrono_literals;
  return terminal_ ? 200ms : 10s;
}

}  // namespace gemmad
