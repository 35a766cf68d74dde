#include "daemon/ctl/encode_fields.h"

#include <nlohmann/json.hpp>

namespace gemmad {

nlohmann::json encode_fields(const CtlOptions& options) {
  nlohmann::json request = {{"op", "encode"}};
  if (!options.outputs.empty()) request["outputs"] = options.outputs;
  if (!options.layers.empty()) request["layers"] = options.layers;
  if (!options.modalities.empty()) request["modalities"] = options.modalities;
  if (!options.name.empty()) request["name"] = options.name;
  if (!options.prefer.empty()) request["prefer"] = options.prefer;
  if (options.readers) request["readers"] = *options.readers;
  if (options.deadline_ms) request["deadline_ms"] = *options.deadline_ms;
  return request;
}

}  // namespace gemmad
