#include "daemon/ctl/encode_file/encode_target.h"

#include <algorithm>

#include "daemon/ctl/control_client.h"

namespace gemmad {

namespace {

using nlohmann::json;

// For what a request has beside its prompts.
constexpr std::size_t kOtherRequestBytes = 4096;

bool offers(const json& info, const std::string& output) {
  const json& offered = info.at("outputs");
  return std::find(offered.begin(), offered.end(), output) != offered.end();
}

std::vector<std::string> wanted_outputs(const json& info, const CtlOptions& options) {
  const bool trainer = options.encode_file.format == FileFormat::kTrainer;
  if (trainer && !options.outputs.empty())
    throw CtlUsageError("--format trainer has its own outputs: leave --outputs out");
  std::vector<std::string> outputs = options.outputs;
  if (!options.layers.empty() && outputs.empty()) outputs = {"hidden_states"};
  if (outputs.empty()) outputs = {trainer || offers(info, "features") ? "features" : "last_hidden_state"};
  for (const std::string& output : outputs) {
    if (offers(info, output)) continue;
    throw CtlUsageError("this daemon has no output '" + output.substr(0, 64) + "'; it has " +
                        info.at("outputs").dump() +
                        (trainer ? " (the trainer's format needs features, which come from the embeddings "
                                   "processor of an LTX checkpoint)"
                                 : ""));
  }
  std::sort(outputs.begin(), outputs.end());
  outputs.erase(std::unique(outputs.begin(), outputs.end()), outputs.end());
  return outputs;
}

std::int64_t prompts_of_request(const json& info, const std::optional<std::int64_t>& wanted) {
  const auto most = info.at("config").at("max_prompts").get<std::int64_t>();
  if (wanted && *wanted > most) {
    throw CtlUsageError("--batch is " + std::to_string(*wanted) + "; this daemon takes " +
                        std::to_string(most) + " prompts a request (max_prompts)");
  }
  return wanted.value_or(std::min(EncodeFileOptions::kDefaultBatch, most));
}

/// The type that a device computes in, of a description like "CPU, fp32, OpenBLAS". Results of both in one
/// folder would be a surprise.
json number_type(const std::string& device) {
  for (const char* const type : {"fp32", "bf16", "fp16"}) {
    if (device.find(std::string(", ") + type) != std::string::npos) return type;
  }
  return nullptr;
}

json settings_of(const json& info, const CtlOptions& options, const std::vector<std::string>& outputs) {
  json settings = {{"format", name_of(options.encode_file.format)},
                   {"outputs", outputs},
                   {"layers", nullptr},
                   {"model", info.at("model")},
                   {"embeddings_processor", info.at("embeddings_processor")},
                   {"max_tokens", info.at("config").at("max_tokens")},
                   {"numbers", number_type(info.at("ranks").at(0).at("device").get<std::string>())}};
  if (options.layers.empty()) return settings;
  std::vector<std::int64_t> layers = options.layers;
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  settings["layers"] = layers;
  return settings;
}

/// Sorts out whose results are saved, and who else here has a segment that they would fill.
void choose_readers(EncodeTarget& target, const LocalRanks& local, int rank) {
  target.num_elsewhere = local.num_elsewhere;
  target.reads = find_rank(local, rank, "--rank");
  std::vector<std::string> sockets = {target.reads.reader_socket};
  for (const LocalRank& one : local.ranks) {
    if (std::find(sockets.begin(), sockets.end(), one.reader_socket) != sockets.end()) continue;
    sockets.push_back(one.reader_socket);
    target.lets_go.push_back(one);
  }
}

}  // namespace

EncodeTarget encode_target(const json& info, const CtlOptions& options) {
  try {
    EncodeTarget target;
    target.outputs = wanted_outputs(info, options);
    target.batch = prompts_of_request(info, options.encode_file.batch);
    target.limits.vocab_size = info.at("model").at("vocab_size").get<std::int64_t>();
    const auto max_line_bytes = info.at("config").at("max_line_bytes").get<std::size_t>();
    target.limits.max_request_bytes = max_line_bytes - std::min(max_line_bytes, kOtherRequestBytes);
    choose_readers(target, local_ranks(info), options.rank);
    target.settings = settings_of(info, options, target.outputs);
    return target;
  } catch (const json::exception& error) {
    throw ClientError(std::string("the daemon's info is not as expected: ") + error.what());
  }
}

std::string settings_difference(const json& there, const json& here) {
  std::string text;
  for (const json& step : json::diff(there, here)) {
    const json::json_pointer place(step["path"].get<std::string>());
    const auto value = [&place](const json& settings) {
      return settings.contains(place) ? settings[place].dump().substr(0, 200) : std::string("missing");
    };
    text +=
        (text.empty() ? "" : "; ") + place.to_string() + " is " + value(there) + " and not " + value(here);
  }
  return text;
}

}  // namespace gemmad
