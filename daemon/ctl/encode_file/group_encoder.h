// One of the connections of a run: a request in flight, and a result being written.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "comm/reader/gemmad_reader.h"
#include "daemon/ctl/control_client.h"
#include "daemon/ctl/encode_file/encode_target.h"
#include "daemon/ctl/encode_file/group_writer.h"
#include "daemon/ctl/rank_reader.h"

namespace gemmad {

/// Made in one thread, run in another.
class GroupEncoder {
 public:
  /// `fields` are those of every request, without the prompts. Connects. The references must outlive it.
  /// Throws ClientError, ReaderError.
  GroupEncoder(ControlClient client, const EncodeTarget& target, nlohmann::json fields, PromptSource& source,
               const WriterContext& context);

  /// Encodes group after group until the source has no more or the run stops, and waits until all is written.
  /// What goes wrong fails the run.
  void run();

 private:
  void encode(const GroupPart& part);
  /// Sends until there is a result or an error that stays. Nothing when the run stops meanwhile.
  std::optional<nlohmann::json> ask(const nlohmann::json& request);
  std::optional<Reader::Result> acquire(const nlohmann::json& reply);
  /// When the request is refused for what it is.
  void refused(const GroupPart& part, const nlohmann::json& error);

  ControlClient client_;
  Reader reader_;
  std::vector<std::unique_ptr<RankReader>> others_;
  nlohmann::json fields_;
  PromptSource& source_;
  const WriterContext& context_;
  std::optional<GroupWriter> writer_;
};

/// How long to wait before the attempt number `attempt`, from 1, of a request that there was no room for.
std::chrono::milliseconds pause_before(int attempt);

}  // namespace gemmad
