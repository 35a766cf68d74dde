#include <vector>

#include "daemon/ctl/options.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

CtlOptions parsed(std::vector<const char*> arguments) {
  return parse_ctl_options(arguments);
}

TEST_CASE("switch takes what is to change and leaves the rest alone") {
  const SwitchOptions options =
      parsed({"switch", "--mode", "sharded", "--ranks-per-replica=2", "--encoder-ranks", "0,3"}).switched;
  CHECK(options.mode == "sharded");
  CHECK(options.strategy.empty());
  CHECK(options.ranks_per_replica == 2);
  REQUIRE(options.encoder_ranks.has_value());
  CHECK(*options.encoder_ranks == std::vector<std::int64_t>{0, 3});
}

TEST_CASE("all ranks are an empty list, and no list is none") {
  CHECK(parsed({"switch", "--encoder-ranks", "all"}).switched.encoder_ranks == std::vector<std::int64_t>{});
  CHECK_FALSE(parsed({"switch", "--mode", "adaptive"}).switched.encoder_ranks.has_value());
}

TEST_CASE("an option that would do nothing is refused") {
  CHECK_THROWS_AS(parsed({"switch", "--mode", "adaptive", "--prompt", "a"}), CtlUsageError);
  CHECK_THROWS_AS(parsed({"encode", "--mode", "adaptive"}), CtlUsageError);
  CHECK_THROWS_AS(parsed({"sleep", "--strategy", "layer"}), CtlUsageError);
  CHECK_THROWS_AS(parsed({"switch", "--encoder-ranks", "0,x"}), CtlUsageError);
  CHECK_THROWS_AS(parsed({"encode", "--prefer", "both"}), CtlUsageError);
}

}  // namespace
}  // namespace gemmad
