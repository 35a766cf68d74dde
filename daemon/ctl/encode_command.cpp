#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "comm/reader/gemmad_reader.h"
#include "daemon/ctl/commands.h"
#include "daemon/ctl/encode_fields.h"
#include "daemon/ctl/enhance/enhance_fields.h"
#include "daemon/ctl/local_ranks.h"
#include "daemon/ctl/read_json_file.h"
#include "daemon/ctl/safetensors_writer.h"

namespace gemmad {

namespace {

using nlohmann::json;

constexpr std::chrono::seconds kReaderTimeout{10};

json encode_request(const CtlOptions& options) {
  json prompts = json::array();
  for (const std::string& prompt : options.prompts)
    prompts.push_back(prompt);
  if (!options.prompts_file.empty()) {
    for (const json& prompt : read_prompts_file(options.prompts_file))
      prompts.push_back(prompt);
  }
  json request = encode_fields(options);
  request["prompts"] = std::move(prompts);
  request["return_input_ids"] = true;
  if (options.enhances) request["enhance"] = enhance_fields(options.enhance);
  return request;
}

void save(const std::string& file, const Reader::Result& result, const json& reply) {
  std::vector<std::vector<std::int32_t>> ids;
  ids.reserve(result.prompts().size());
  std::vector<TensorToWrite> tensors;
  for (std::size_t i = 0; i < result.prompts().size(); ++i) {
    const Reader::Prompt& prompt = result.prompts()[i];
    if (!prompt.ok) continue;
    const std::string prefix = "prompt." + std::to_string(i) + ".";
    ids.push_back(reply["prompts"][i]["input_ids"].get<std::vector<std::int32_t>>());
    tensors.push_back({prefix + "input_ids",
                       "I32",
                       {static_cast<std::int64_t>(ids.back().size())},
                       ids.back().data(),
                       ids.back().size() * sizeof(std::int32_t)});
    for (const Reader::Tensor& tensor : prompt.tensors) {
      tensors.push_back({prefix + tensor.name, tensor.dtype, tensor.shape, tensor.data, tensor.size_bytes});
    }
  }
  write_safetensors(file, tensors, {{"made_by", "gemmactl " GEMMAD_VERSION}});
}

/// The first `width` columns' worth of a text: whole UTF-8 characters on one line.
std::string shortened(const std::string& text, std::size_t width) {
  std::string out;
  std::size_t columns = 0;
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    // Most characters of three or four bytes are as wide as two.
    columns += size >= 3 ? 2 : 1;
    if (columns > width) return out + "...";
    out += lead < 0x20 ? std::string(" ") : text.substr(i, size);
    i += size;
  }
  return out + std::string(width + 3 - columns, ' ');
}

std::string prompt_label(const json& prompt) {
  if (prompt.is_string()) return prompt.get<std::string>();
  return "(" + std::to_string(prompt["input_ids"].size()) + " input ids)";
}

std::string shape_label(const json& tensors) {
  if (tensors.empty()) return "-";
  std::string label = tensors[0]["shape"].dump();
  std::replace(label.begin(), label.end(), ',', 'x');
  return std::to_string(tensors.size()) + " x " + label;
}

void print_table(const json& request, const json& reply, const std::string& saved) {
  std::printf("%3s  %-43s  %6s  %-9s  %-18s  %10s  %s\n", "", "prompt", "tokens", "truncated", "tensors",
              "request ms", "saved to");
  const std::string ms = std::to_string(static_cast<long>(reply["ms"]["total"].get<double>() * 10 + 0.5));
  const std::string total = (ms.size() > 1 ? ms.substr(0, ms.size() - 1) : "0") + "." + ms.back();
  for (std::size_t i = 0; i < reply["prompts"].size(); ++i) {
    const json& prompt = reply["prompts"][i];
    const std::string label = shortened(prompt_label(request["prompts"][i]), 40);
    if (prompt["status"] != "ok") {
      std::printf("%3zu  %s  %s\n", i, label.c_str(), text_of(prompt["error"]).c_str());
      continue;
    }
    std::printf("%3zu  %s  %6d  %-9s  %-18s  %10s  %s\n", i, label.c_str(), prompt["tokens"].get<int>(),
                prompt["truncated"].get<bool>() ? "yes" : "no", shape_label(prompt["tensors"]).c_str(),
                total.c_str(), saved.empty() ? "-" : saved.c_str());
  }
}

bool everything_delivered(const json& reply) {
  return std::all_of(reply["prompts"].begin(), reply["prompts"].end(),
                     [](const json& prompt) { return prompt["status"] == "ok"; });
}

Reader::Result read(const LocalRank& rank, std::uint64_t job) {
  return Reader::connect(rank.reader_socket, kReaderTimeout).acquire(job, kReaderTimeout);
}

/// Comes for the result at every rank here but `reads`, so that it does not keep its space there for its time
/// to live.
void give_up_unread(const LocalRanks& local, const LocalRank* reads, std::uint64_t job) {
  for (const LocalRank& rank : local.ranks) {
    if (&rank == reads) continue;
    try {
      read(rank, job);
    } catch (const ReaderError& error) {
      std::fprintf(stderr, "gemmactl: rank %d keeps the result: %s\n", rank.rank, error.what());
    }
  }
}

}  // namespace

int encode_command(ControlClient& client, const CtlOptions& options) {
  const json request = encode_request(options);
  const LocalRanks local = local_ranks(client.call({{"op", "info"}}));
  const LocalRank& chosen = find_rank(local, options.rank, "--rank");
  json reply = client.call(request, print_tokens(options.json));
  if (options.enhance.streams && !options.json) std::printf("\n");
  if (!reply.value("ok", false)) {
    std::fprintf(stderr, "gemmactl: %s\n", text_of(reply["error"]).c_str());
    if (options.json) std::printf("%s\n", reply.dump().c_str());
    return 1;
  }
  const auto job = reply["job"].get<std::uint64_t>();
  const LocalRank* const reads = options.save_file.empty() ? nullptr : &chosen;
  if (reads != nullptr) {
    save(options.save_file, read(*reads, job), reply);
    reply["saved"] = options.save_file;
  }
  // With either, others come for it.
  if (options.name.empty() && !options.readers) give_up_unread(local, reads, job);
  if (options.json) {
    std::printf("%s\n", reply.dump().c_str());
  } else {
    if (options.enhances && !options.enhance.streams)
      std::printf("%s\n", reply["enhanced"]["text"].get<std::string>().c_str());
    print_table(request, reply, options.save_file);
  }
  if (options.enhances) {
    std::fflush(stdout);
    warn_of_stop(reply["enhanced"]);
  }
  return everything_delivered(reply) ? 0 : 1;
}

}  // namespace gemmad
