#include "daemon/log_level.h"

#include <spdlog/spdlog.h>

namespace gemmad {

namespace {

spdlog::level::level_enum threshold(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void set_log_level(LogLevel level) {
  spdlog::set_level(threshold(level));
}

}  // namespace gemmad
