#include "config/config_schema.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "config/config_table.h"
#include "tests/config/config_testing.h"
#include "tests/support/catch.h"

using namespace gemmad;
using nlohmann::json;

namespace {

const std::filesystem::path kConfigFolder = std::filesystem::path(GEMMAD_TEST_DATA) / "../../config";

}  // namespace

TEST_CASE("The schema file equals the table") {
  const std::filesystem::path wanted = std::filesystem::path(GEMMAD_TEST_SCRATCH) / "gemmad.schema.json";
  std::ofstream(wanted) << config_schema_text();
  INFO("to bring it up to date: gemmad --print-schema > config/gemmad.schema.json (or copy "
       << wanted.string() << ")");
  CHECK(read_text_file(kConfigFolder / "gemmad.schema.json", kMaxConfigBytes) == config_schema_text());
}

TEST_CASE("The schema names its draft and allows no other keys") {
  const json schema = config_schema();
  CHECK(schema.at("$schema") == "https://json-schema.org/draft/2020-12/schema");
  CHECK(schema.at("type") == "object");
  CHECK(schema.at("additionalProperties") == false);
  std::set<std::string_view> keys;  // of the outermost object
  for (const ConfigRow& row : config_table())
    keys.insert(row.section().empty() ? row.name : row.section());
  CHECK(schema.at("properties").size() == keys.size() + 1);
  CHECK(schema.at("properties").at("$schema").at("type") == "string");
}

TEST_CASE("The schema has type, bounds, default and meaning of every key") {
  const json schema = config_schema();
  for (const ConfigRow& row : config_table()) {
    CAPTURE(row.name);
    json owner = schema;
    if (!row.section().empty()) {
      owner = schema.at("properties").at(std::string(row.section()));
      CHECK(owner.at("type") == "object");
      CHECK(owner.at("additionalProperties") == false);
    }
    const json property = owner.at("properties").at(std::string(row.key()));
    CHECK(property.at("default") == get_value(row, DaemonConfig{}));
    CHECK(contains(property.at("description").get<std::string>(), std::string(row.help)));
    if (const auto* integer = std::get_if<IntegerField>(&row.field)) {
      CHECK(property.at("type") == "integer");
      CHECK(property.at("minimum") == integer->min);
      CHECK(property.at("maximum") == integer->max);
    } else if (const auto* choice = std::get_if<EnumField>(&row.field)) {
      CHECK(property.at("enum") ==
            json(std::vector<std::string>(choice->names.begin(), choice->names.end())));
    } else if (const auto* list = std::get_if<IntegerListField>(&row.field)) {
      CHECK(property.at("type") == "array");
      CHECK(property.at("items") ==
            json({{"type", "integer"}, {"minimum", list->min}, {"maximum", list->max}}));
      CHECK(property.at("maxItems") == list->max_items);
      CHECK(property.at("uniqueItems") == true);
    } else {
      CHECK(property.at("type") == "string");
      CHECK(property.at("maxLength") == std::get<PathField>(row.field).max_bytes);
    }
  }
}

TEST_CASE("Every example config loads, can run, and points editors at the schema") {
  std::size_t examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kConfigFolder / "examples")) {
    CAPTURE(entry.path().string());
    CHECK(entry.path().extension() == ".json");
    DaemonConfig config;
    REQUIRE_NOTHROW(config = load_config(entry.path(), {}));
    CHECK_NOTHROW(validate_for_run(config));
    const std::string name = json::parse(read_text_file(entry.path(), kMaxConfigBytes)).at("$schema");
    CHECK(
        std::filesystem::equivalent(entry.path().parent_path() / name, kConfigFolder / "gemmad.schema.json"));
    ++examples;
  }
  CHECK(examples == 5);
}
