#include "daemon/ctl/encode_file/problems.h"

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "kernels/base/file_descriptor.h"

namespace gemmad {

namespace {

constexpr std::int64_t kMostSaid = 20;  // then the list has to do

}  // namespace

Problems::Problems(std::string input, std::filesystem::path list, bool skips, RunState& run,
                   Progress& progress, Display& display)
    : input_(std::move(input)),
      list_(std::move(list)),
      skips_(skips),
      run_(run),
      progress_(progress),
      display_(display) {
  if (::unlink(list_.c_str()) != 0 && errno != ENOENT) throw SystemError(errno, "remove " + list_.string());
}

void Problems::report(const Problem& problem) {
  const std::string text = input_ + ":" + std::to_string(problem.line) + ": " + problem.reason;
  if (!skips_) {
    run_.fail(text + " (--on-error skip goes on without it)");
    return;
  }
  const std::lock_guard lock(mutex_);
  append_to_list(problem);
  progress_.add_skipped();
  say(text);
}

void Problems::say(const std::string& text) {
  if (num_said_ < kMostSaid) display_.say("gemmactl: skipped: " + text);
  if (++num_said_ == kMostSaid) display_.say("gemmactl: whatever else is skipped is in " + list_.string());
}

void Problems::append_to_list(const Problem& problem) {
  using nlohmann::json;
  if (!file_) {
    file_.reset(std::fopen(list_.c_str(), "we"));
    if (!file_) throw SystemError(errno, "create " + list_.string());
  }
  const json line = {{"line", problem.line},
                     {"id", problem.id.empty() ? json() : json(problem.id)},
                     {"reason", problem.reason}};
  const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  if (std::fputs(text.c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0)
    throw SystemError(errno, "write " + list_.string());
}

}  // namespace gemmad
