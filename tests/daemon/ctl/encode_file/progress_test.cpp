#include "daemon/ctl/encode_file/progress.h"

#include "tests/support/catch.h"

namespace gemmad {
namespace {

using Seconds = std::chrono::duration<double>;

TEST_CASE("rates count what this run has encoded, not what was there") {
  const ProgressCounts counts{1000, 100, 500, 10, 4000};
  const Rates rates = rates_of(counts, Seconds(20));
  CHECK(rates.prompts == 5);
  CHECK(rates.tokens == 200);
  CHECK(counts.done() == 610);
}

TEST_CASE("before the clock runs there are no rates") {
  CHECK(rates_of({10, 5, 0, 0, 7}, Seconds(0)).prompts == 0);
}

TEST_CASE("the time left is that of what is left, at the rate so far") {
  CHECK(progress_text({1000, 100, 500, 0, 4000}, Seconds(20)) ==
        "600/1000 prompts, 5.0 prompts/s, 200 tokens/s, 80 s left");
  CHECK(progress_text({1000, 100, 500, 10, 4000}, Seconds(20)) ==
        "610/1000 prompts, 5.0 prompts/s, 200 tokens/s, 10 skipped, 78 s left");
}

TEST_CASE("without a rate nothing is said of the time left") {
  CHECK(progress_text({1000, 0, 500, 0, 0}, Seconds(3)) == "500/1000 prompts, 0.0 prompts/s, 0.0 tokens/s");
}

TEST_CASE("more than was counted leaves no time, and no longer bar") {
  const ProgressCounts counts{10, 12, 0, 0, 12};
  CHECK(progress_text(counts, Seconds(1)).find(" 0 s left") != std::string::npos);
  CHECK(progress_bar(counts, 4) == "[====]");
}

TEST_CASE("the bar fills up") {
  CHECK(progress_bar({8, 0, 0, 0, 0}, 4) == "[>   ]");
  CHECK(progress_bar({8, 4, 0, 0, 0}, 4) == "[==> ]");
  CHECK(progress_bar({8, 8, 0, 0, 0}, 4) == "[====]");
  CHECK(progress_bar({0, 0, 0, 0, 0}, 4) == "[====]");
}

TEST_CASE("durations are told in the unit that fits") {
  CHECK(duration_text(Seconds(0)) == "0 s");
  CHECK(duration_text(Seconds(0.2)) == "1 s");
  CHECK(duration_text(Seconds(119)) == "119 s");
  CHECK(duration_text(Seconds(120)) == "2 min");
  CHECK(duration_text(Seconds(121)) == "3 min");
  CHECK(duration_text(Seconds(7200)) == "2 h 0 min");
  CHECK(duration_text(Seconds(12'000)) == "3 h 20 min");
}

TEST_CASE("counts add up from many calls") {
  Progress progress(5);
  progress.add_encoded(30);
  progress.add_encoded(4);
  progress.add_there();
  progress.add_skipped();
  const ProgressCounts counts = progress.counts();
  CHECK(counts.total == 5);
  CHECK(counts.encoded == 2);
  CHECK(counts.tokens == 34);
  CHECK(counts.done() == 4);
}

}  // namespace
}  // namespace gemmad
