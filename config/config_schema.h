// A JSON Schema of the config file, for editors.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace gemmad {

/// JSON Schema, draft 2020-12, derived from config_table(). It refuses no file that parse_config accepts.
nlohmann::json config_schema();

/// The schema as config/gemmad.schema.json holds it: indented by two, with a newline at the end.
std::string config_schema_text();

}  // namespace gemmad
