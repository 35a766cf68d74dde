#include "daemon/order_desk.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

using nlohmann::json;

DaemonConfig running_config() {
  DaemonConfig config;
  config.model = "/models/tiny";
  config.socket = "/tmp/s";
  config.segment_mib = 77;
  return config;
}

/// A desk whose settings, read anew, are `loaded`.
struct DeskFixture {
  DaemonConfig loaded = running_config();
  JobQueue queue{8};
  OrderDesk desk{queue, [this] { return loaded; }};

  std::vector<Order> taken() { return queue.take(1, std::chrono::milliseconds(0)).orders; }
};

std::string refusal(const SwitchRequest& request) {
  try {
    wanted_change(running_config(), request);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST_CASE_METHOD(DeskFixture, "An order is queued with a ticket by which its giver is found, once") {
  CHECK(desk.give({7, "\"a\""}, OrderKind::kSleep));
  CHECK(desk.give({8, "2"}, OrderKind::kReconfigure, "{}"));
  const std::vector<Order> orders = taken();
  REQUIRE(orders.size() == 2);
  CHECK(orders[0].kind == OrderKind::kSleep);
  CHECK(orders[1].settings == "{}");
  const auto second = desk.take_giver(orders[1].ticket);
  REQUIRE(second.has_value());
  CHECK(second->client == 8);
  CHECK(second->request == "2");
  CHECK_FALSE(desk.take_giver(orders[1].ticket).has_value());
  CHECK(desk.take_giver(orders[0].ticket)->request == "\"a\"");
}

TEST_CASE_METHOD(DeskFixture, "Nobody waits for an order without a ticket") {
  desk.give({7, "1"}, OrderKind::kWake);
  CHECK_FALSE(desk.take_giver(0).has_value());
  CHECK(taken().at(0).ticket != 0);
}

TEST_CASE_METHOD(DeskFixture, "An order that the queue does not take has no giver") {
  queue.close();
  CHECK_FALSE(desk.give({7, "1"}, OrderKind::kWake));
  CHECK_FALSE(desk.owes(7));
}

TEST_CASE_METHOD(DeskFixture, "A client is owed an answer until its order has ended") {
  CHECK_FALSE(desk.owes(7));
  desk.give({7, "1"}, OrderKind::kWake);
  CHECK(desk.owes(7));
  CHECK_FALSE(desk.owes(8));
  desk.take_giver(taken().at(0).ticket);
  CHECK_FALSE(desk.owes(7));
}

TEST_CASE_METHOD(DeskFixture, "What a client that has gone had waiting is given up, that of others is not") {
  desk.give({7, "1"}, OrderKind::kWake);
  desk.give({8, "2"}, OrderKind::kSleep);
  desk.forget(7);
  CHECK_FALSE(desk.owes(7));
  CHECK(desk.owes(8));
  const std::vector<Order> orders = taken();
  REQUIRE(orders.size() == 1);
  CHECK(orders[0].kind == OrderKind::kSleep);
  CHECK(desk.take_giver(orders[0].ticket).has_value());
}

TEST_CASE_METHOD(DeskFixture, "Settings read again are an order that nobody waits for") {
  loaded.mode = Mode::kAdaptive;
  loaded.result_ttl_ms = 500;
  desk.reload(running_config());
  const std::vector<Order> orders = taken();
  REQUIRE(orders.size() == 1);
  CHECK(orders[0].kind == OrderKind::kReconfigure);
  CHECK(orders[0].ticket == 0);
  CHECK(parse_config(orders[0].settings, "order") == loaded);
}

TEST_CASE_METHOD(DeskFixture, "Settings that cannot change at run time change nothing") {
  loaded.mode = Mode::kAdaptive;
  loaded.segment_mib = 78;
  desk.reload(running_config());
  CHECK(taken().empty());
}

TEST_CASE("Settings that cannot be read change nothing") {
  JobQueue queue(8);
  OrderDesk desk(queue, []() -> DaemonConfig { return parse_config("{", "gemmad.json"); });
  desk.reload(running_config());
  CHECK(queue.take(1, std::chrono::milliseconds(0)).orders.empty());
}

TEST_CASE("A switch changes what it names and leaves all other settings") {
  SwitchRequest request;
  request.mode = "sharded";
  request.encoder_ranks = std::vector<std::int64_t>{0, 2};
  DaemonConfig expected = running_config();
  expected.mode = Mode::kSharded;
  expected.encoder_ranks = {0, 2};
  CHECK(changed_config(running_config(), json::parse(wanted_change(running_config(), request)), "order") ==
        expected);

  SwitchRequest other;
  other.strategy = "layer";
  other.ranks_per_replica = 2;
  expected = running_config();
  expected.strategy = Strategy::kLayer;
  expected.ranks_per_replica = 2;
  CHECK(changed_config(running_config(), json::parse(wanted_change(running_config(), other)), "order") ==
        expected);
}

TEST_CASE("A switch to what no setting can be is refused by key") {
  SwitchRequest request;
  request.mode = "sideways";
  CHECK(refusal(request).find("request: key 'mode': is 'sideways'") != std::string::npos);
  SwitchRequest twice;
  twice.encoder_ranks = std::vector<std::int64_t>{1, 1};
  CHECK(refusal(twice).find("key 'encoder_ranks': names 1 twice") != std::string::npos);
}

TEST_CASE_METHOD(DeskFixture, "Orders that wait are taken back with their givers") {
  desk.give({7, "1"}, OrderKind::kSleep);
  const std::vector<OrderDesk::Giver> givers = desk.withdraw_all();
  REQUIRE(givers.size() == 1);
  CHECK(givers[0].client == 7);
  CHECK(taken().empty());
  CHECK_FALSE(desk.owes(7));
}

TEST_CASE_METHOD(DeskFixture, "An order under way is not taken back") {
  desk.give({7, "1"}, OrderKind::kSleep);
  taken();
  CHECK(desk.withdraw_all().empty());
  CHECK(desk.owes(7, "1"));
  CHECK_FALSE(desk.owes(7, "2"));
}

}  // namespace
}  // namespace gemmad
