#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "config/config_table.h"
#include "config/daemon_config.h"

namespace gemmad {

namespace {

struct TypeName {
  std::string operator()(const PathField&) const { return "path"; }
  std::string operator()(const IntegerField&) const { return "integer"; }
  std::string operator()(const IntegerListField&) const { return "list"; }
  std::string operator()(const EnumField&) const { return "enum"; }
};

struct Bounds {
  std::string operator()(const PathField& field) const {
    return "up to " + std::to_string(field.max_bytes) + " bytes";
  }
  std::string operator()(const IntegerField& field) const {
    return std::to_string(field.min) + ".." + std::to_string(field.max);
  }
  std::string operator()(const IntegerListField& field) const {
    return "each " + std::to_string(field.min) + ".." + std::to_string(field.max);
  }
  std::string operator()(const EnumField& field) const {
    std::string result;
    for (const std::string_view choice : field.names) {
      if (!result.empty()) result += '|';
      result += choice;
    }
    return result;
  }
};

std::string default_text(const ConfigRow& row) {
  const nlohmann::json value = get_value(row, DaemonConfig{});
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  return text.empty() ? "-" : text;
}

}  // namespace

std::string config_help() {
  using Line = std::array<std::string, 6>;
  std::vector<Line> lines{{"KEY", "TYPE", "DEFAULT", "BOUNDS", "RUN TIME", "MEANING"}};
  for (const ConfigRow& row : config_table()) {
    std::string bounds = std::visit(Bounds{}, row.field);
    if (!row.unit.empty()) bounds.append(" ").append(row.unit);
    lines.push_back({std::string(row.name), std::visit(TypeName{}, row.field), default_text(row), bounds,
                     row.changes_at_run_time ? "yes" : "no", std::string(row.help)});
  }
  std::array<std::size_t, 6> widths{};
  for (const Line& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i)
      widths[i] = std::max(widths[i], line[i].size());
  }
  std::string result;
  for (Line& line : lines) {
    for (std::size_t i = 0; i + 1 < line.size(); ++i) {
      line[i].resize(widths[i] + 2, ' ');
      result += line[i];
    }
    result += line.back() + '\n';
  }
  return result;
}

}  // namespace gemmad
