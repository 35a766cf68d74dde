#include <algorithm>
#include <ctime>
#include <string>

#include "tests/daemon/tokenizer/real_tokenizer.h"
#include "tests/support/catch.h"

using namespace gemmad;

namespace {

std::string repeated(const std::string& unit, std::size_t size_bytes) {
  std::string text;
  while (text.size() < size_bytes)
    text += unit;
  return text;
}

/// Processor seconds, which other programs on the machine do not lengthen much; the best of `runs`.
double encode_seconds(const std::string& text, int runs) {
  double best = 1e9;
  for (int run = 0; run < runs; ++run) {
    const std::clock_t start = std::clock();
    test::real_tokenizer().encode(text);
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return best;
}

}  // namespace

TEST_CASE("A megabyte takes about sixteen times what 64 KiB take", "[tokenizer][real]") {
  struct Input {
    const char* name;
    std::string unit;
  };
  const Input input =
      GENERATE(Input{"one letter", "a"}, Input{"spaces", " "}, Input{"newlines", "\n"}, Input{"ab", "ab"},
               Input{"emoji", "\U0001F642"}, Input{"bytes", "\U0010FFFF"}, Input{"open tags", "<unused"});
  const std::string small = repeated(input.unit, 64 << 10);
  const std::string large = repeated(input.unit, 1 << 20);
  const double small_seconds = encode_seconds(small, 5);
  const double large_seconds = encode_seconds(large, 2);
  // Sixteen times the text: n log n makes it 20-fold, caches that no longer hold it maybe 60-fold, n squared
  // 256-fold.
  INFO(input.name << ": " << small_seconds << " s, then " << large_seconds << " s");
  CHECK(large_seconds < 100 * std::max(small_seconds, 0.0005));
}
