#include "daemon/ctl/encode_file/progress.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace gemmad {

namespace {

using Seconds = std::chrono::duration<double>;

std::string rounded(double value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), value < 100 ? "%.1f" : "%.0f", std::min(value, 1e15));
  return text.data();
}

}  // namespace

Rates rates_of(const ProgressCounts& counts, Seconds elapsed) {
  if (elapsed.count() <= 0) return {};
  return {static_cast<double>(counts.encoded) / elapsed.count(),
          static_cast<double>(counts.tokens) / elapsed.count()};
}

std::string progress_text(const ProgressCounts& counts, Seconds elapsed) {
  const Rates rates = rates_of(counts, elapsed);
  std::string text = std::to_string(counts.done()) + "/" + std::to_string(counts.total) + " prompts, " +
                     rounded(rates.prompts) + " prompts/s, " + rounded(rates.tokens) + " tokens/s";
  if (counts.skipped > 0) text += ", " + std::to_string(counts.skipped) + " skipped";
  const std::int64_t left = std::max<std::int64_t>(counts.total - counts.done(), 0);
  if (rates.prompts > 0)
    text += ", " + duration_text(Seconds(static_cast<double>(left) / rates.prompts)) + " left";
  return text;
}

std::string progress_bar(const ProgressCounts& counts, int width) {
  const double share =
      counts.total > 0 ? static_cast<double>(counts.done()) / static_cast<double>(counts.total) : 1;
  const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * width);
  std::string bar(static_cast<std::size_t>(filled), '=');
  if (filled < width) bar += '>';
  bar.resize(static_cast<std::size_t>(width), ' ');
  return "[" + bar + "]";
}

std::string duration_text(Seconds duration) {
  const auto seconds = static_cast<std::int64_t>(std::ceil(std::clamp(duration.count(), 0.0, 1e12)));
  if (seconds < 120) return std::to_string(seconds) + " s";
  const std::int64_t minutes = (seconds + 59) / 60;
  if (minutes < 120) return std::to_string(minutes) + " min";
  return std::to_string(minutes / 60) + " h " + std::to_string(minutes % 60) + " min";
}

}  // namespace gemmad
