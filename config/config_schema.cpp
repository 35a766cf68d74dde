#include "config/config_schema.h"

#include <nlohmann/json.hpp>

#include "config/config_table.h"

namespace gemmad {

using nlohmann::json;

namespace {

struct FieldSchema {
  json operator()(const PathField& field) const {
    // maxLength counts characters, the bound is in bytes: this refuses no path that the daemon takes.
    return {{"type", "string"}, {"maxLength", field.max_bytes}};
  }
  json operator()(const IntegerField& field) const {
    return {{"type", "integer"}, {"minimum", field.min}, {"maximum", field.max}};
  }
  json operator()(const IntegerListField& field) const {
    return {{"type", "array"},
            {"items", {{"type", "integer"}, {"minimum", field.min}, {"maximum", field.max}}},
            {"maxItems", field.max_items},
            {"uniqueItems", true}};
  }
  json operator()(const EnumField& field) const { return {{"enum", field.names}}; }
};

std::string description(const ConfigRow& row) {
  std::string text(row.help);
  if (!row.unit.empty()) text.append(" [").append(row.unit).append("]");
  text += row.changes_at_run_time ? "; changes at run time" : "; fixed at start";
  return text;
}

/// Where a row's property belongs: among all of them, or in its section's object.
json& properties_of(const ConfigRow& row, json& properties) {
  if (row.section().empty()) return properties;
  json& section = properties[std::string(row.section())];
  section["type"] = "object";
  section["additionalProperties"] = false;
  return section["properties"];
}

}  // namespace

json config_schema() {
  json properties = {
      {"$schema", {{"type", "string"}, {"description", "this schema, for editors; not read"}}}};
  for (const ConfigRow& row : config_table()) {
    json property = std::visit(FieldSchema{}, row.field);
    property["description"] = description(row);
    property["default"] = get_value(row, DaemonConfig{});
    properties_of(row, properties)[std::string(row.key())] = std::move(property);
  }
  return {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
          {"title", "gemmad configuration"},
          {"type", "object"},
          {"additionalProperties", false},
          {"properties", std::move(properties)}};
}

std::string config_schema_text() {
  return config_schema().dump(2) + "\n";
}

}  // namespace gemmad
