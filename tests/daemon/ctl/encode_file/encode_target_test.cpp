#include "daemon/ctl/encode_file/encode_target.h"

#include "daemon/ctl/control_client.h"
#include "daemon/ctl/encode_file/group_encoder.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

using nlohmann::json;
using Names = std::vector<std::string>;

/// Ranks 0, 1 and 2 on this host, of which the last two share a segment, and rank 3 on another.
json some_info() {
  json ranks = json::array();
  for (const int rank : {0, 1, 2, 3}) {
    ranks.push_back({{"rank", rank},
                     {"node", rank / 3},
                     {"device", "CPU, fp32, OpenBLAS, 2 threads"},
                     {"reader_socket", rank == 0 ? "/r0" : "/r1"}});
  }
  return {{"config", {{"max_prompts", 256}, {"max_line_bytes", 1 << 20}, {"max_tokens", 1024}}},
          {"model", {{"vocab_size", 512}, {"path", "/m"}}},
          {"embeddings_processor", nullptr},
          {"outputs", {"hidden_states", "last_hidden_state"}},
          {"ranks", ranks}};
}

json info_with_features() {
  json info = some_info();
  info["outputs"] = {"hidden_states", "last_hidden_state", "features", "embeddings"};
  return info;
}

CtlOptions trainer_options() {
  CtlOptions options;
  options.encode_file.format = FileFormat::kTrainer;
  return options;
}

TEST_CASE("features are the default where the daemon has them") {
  CHECK(encode_target(info_with_features(), {}).outputs == Names{"features"});
  CHECK(encode_target(some_info(), {}).outputs == Names{"last_hidden_state"});
  CtlOptions layers;
  layers.layers = {3};
  CHECK(encode_target(info_with_features(), layers).outputs == Names{"hidden_states"});
}

TEST_CASE("an output that the daemon has not is refused") {
  CtlOptions options;
  options.outputs = {"features"};
  CHECK_THROWS_AS(encode_target(some_info(), options), CtlUsageError);
  CHECK_THROWS_AS(encode_target(some_info(), trainer_options()), CtlUsageError);
  CHECK(encode_target(info_with_features(), trainer_options()).outputs == Names{"features"});
  CtlOptions both = trainer_options();
  both.outputs = {"hidden_states"};
  CHECK_THROWS_AS(encode_target(info_with_features(), both), CtlUsageError);
}

TEST_CASE("a request has no more prompts than the daemon takes") {
  json info = some_info();
  CHECK(encode_target(info, {}).batch == 16);
  info["config"]["max_prompts"] = 5;
  CHECK(encode_target(info, {}).batch == 5);
  CtlOptions options;
  options.encode_file.batch = 5;
  CHECK(encode_target(info, options).batch == 5);
  options.encode_file.batch = 6;
  CHECK_THROWS_AS(encode_target(info, options), CtlUsageError);
}

TEST_CASE("every segment of this host is read or let go once") {
  const EncodeTarget first = encode_target(some_info(), {});
  CHECK(first.reads.reader_socket == "/r0");
  REQUIRE(first.lets_go.size() == 1);
  CHECK(first.lets_go[0].reader_socket == "/r1");
  CHECK(first.num_elsewhere == 1);
  CtlOptions options;
  options.rank = 2;
  const EncodeTarget shared = encode_target(some_info(), options);
  CHECK(shared.reads.reader_socket == "/r1");
  REQUIRE(shared.lets_go.size() == 1);
  CHECK(shared.lets_go[0].reader_socket == "/r0");
  options.rank = 3;
  CHECK_THROWS_AS(encode_target(some_info(), options), CtlUsageError);
}

TEST_CASE("settings tell what a file's content depends on") {
  const json settings = encode_target(some_info(), {}).settings;
  CHECK(settings["numbers"] == "fp32");
  CHECK(settings["model"]["path"] == "/m");
  CtlOptions one;
  one.layers = {8, 0, 8};
  CtlOptions other;
  other.layers = {0, 8};
  CHECK(encode_target(some_info(), one).settings == encode_target(some_info(), other).settings);
  CHECK(encode_target(some_info(), one).settings != settings);
  CtlOptions faster;
  faster.encode_file.in_flight = 9;
  faster.encode_file.batch = 3;
  faster.rank = 1;
  CHECK(encode_target(some_info(), faster).settings == settings);
}

TEST_CASE("a difference of settings is told by place") {
  const json there = {{"a", {{"b", 1}}}, {"c", "x"}};
  CHECK(settings_difference(there, there).empty());
  CHECK(settings_difference(there, {{"a", {{"b", 2}}}, {"c", "x"}}) == "/a/b is 1 and not 2");
  CHECK(settings_difference(there, {{"a", {{"b", 1}}}}) == "/c is \"x\" and not missing");
}

TEST_CASE("an info that lacks what encode-file needs is an error of the daemon") {
  json info = some_info();
  info.erase("outputs");
  CHECK_THROWS_AS(encode_target(info, {}), ClientError);
}

TEST_CASE("pauses between attempts grow up to a bound") {
  using std::chrono::milliseconds;
  CHECK(pause_before(2) == milliseconds(100));
  CHECK(pause_before(3) == milliseconds(200));
  CHECK(pause_before(6) == milliseconds(1600));
  CHECK(pause_before(7) == milliseconds(2000));
  CHECK(pause_before(1'000'000) == milliseconds(2000));
}

}  // namespace
}  // namespace gemmad
