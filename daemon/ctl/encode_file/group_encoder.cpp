#include "daemon/ctl/encode_file/group_encoder.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "daemon/ctl/control_client.h"

namespace gemmad {

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kReaderTimeout{10};
constexpr std::chrono::milliseconds kFirstPause{100};
constexpr std::chrono::milliseconds kLongestPause{2'000};
// Longer than a daemon with much to do refuses anyone.
constexpr std::chrono::minutes kPatience{5};
// There was no room for it, or no time; it may be otherwise soon.
constexpr std::array<std::string_view, 3> kPassing = {"buffers_exhausted", "queue_full", "deadline"};

bool passes(const json& error) {
  return std::find(kPassing.begin(), kPassing.end(), error.at("code").get_ref<const std::string&>()) !=
         kPassing.end();
}

json prompts_of(const GroupPart& part) {
  json prompts = json::array();
  for (std::size_t i = 0; i < part.count; ++i)
    prompts.push_back(part.at(i).input.prompt);
  return prompts;
}

}  // namespace

std::chrono::milliseconds pause_before(int attempt) {
  const int doublings = std::clamp(attempt - 2, 0, 10);
  return std::min(kFirstPause * (1 << doublings), kLongestPause);
}

GroupEncoder::GroupEncoder(ControlClient client, const EncodeTarget& target, json fields,
                           PromptSource& source, const WriterContext& context)
    : client_(std::move(client)),
      reader_(Reader::connect(target.reads.reader_socket, kReaderTimeout)),
      fields_(std::move(fields)),
      source_(source),
      context_(context) {
  for (const LocalRank& rank : target.lets_go)
    others_.push_back(std::make_unique<RankReader>(rank, false));
}

void GroupEncoder::run() {
  try {
    writer_.emplace(context_);
    while (const std::shared_ptr<const PromptGroup> group = source_.take())
      encode({group, 0, group->size()});
  } catch (const json::exception& error) {
    context_.run.fail(std::string("the daemon's reply is not as expected: ") + error.what());
  } catch (const std::exception& error) {
    context_.run.fail(error.what());
  }
  writer_.reset();  // waits
}

void GroupEncoder::encode(const GroupPart& part) {
  json request = fields_;
  request["prompts"] = prompts_of(part);
  for (const auto start = Clock::now();;) {
    std::optional<json> reply = ask(request);
    if (!reply) return;
    if (!reply->value("ok", false)) return refused(part, reply->at("error"));
    if (std::optional<Reader::Result> result = acquire(*reply))
      return writer_->begin(part, std::move(*result), std::move(*reply));
    // This process was held up for so long that the result is gone.
    if (Clock::now() - start > kPatience) throw ClientError("results expire before they can be read");
  }
}

std::optional<json> GroupEncoder::ask(const json& request) {
  const auto start = Clock::now();
  for (int attempt = 1;; ++attempt) {
    if (attempt > 1 && !context_.run.pause(pause_before(attempt))) return std::nullopt;
    json reply = client_.call(request);
    if (reply.value("ok", false) || !passes(reply.at("error"))) return reply;
    if (Clock::now() - start > kPatience)
      throw ClientError("the daemon has had no room for a request for minutes: " + text_of(reply["error"]));
  }
}

std::optional<Reader::Result> GroupEncoder::acquire(const json& reply) {
  const auto job = reply.at("job").get<std::uint64_t>();
  for (const auto& other : others_)
    other->begin(job);
  try {
    return reader_.acquire(job, kReaderTimeout);
  } catch (const ReaderError& error) {
    if (error.code() != "gone" && error.code() != "deadline") throw;
    return std::nullopt;
  }
}

void GroupEncoder::refused(const GroupPart& part, const json& error) {
  if (error.at("code") != "result_too_large") throw ClientError("the daemon refused: " + text_of(error));
  if (part.count > 1) {
    const std::size_t half = part.count / 2;
    encode({part.group, part.first, half});
    encode({part.group, part.first + half, part.count - half});
    return;
  }
  const GroupedPrompt& prompt = part.at(0);
  context_.problems.report({prompt.input.line, prompt.input.id, text_of(error)});
}

}  // namespace gemmad
