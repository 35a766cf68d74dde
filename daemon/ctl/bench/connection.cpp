#include "daemon/ctl/bench/connection.h"

#include <charconv>
#include <chrono>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace gemmad {

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

/// The job of a reply, if it has one. All that readers need to know: to parse a line that lists every tensor
/// takes time that is not the daemon's.
std::optional<std::uint64_t> job_of(std::string_view reply) {
  constexpr std::string_view kKey = "\"job\":";  // within a string its quotes would be escaped
  const std::size_t key = reply.find(kKey);
  if (key == std::string_view::npos) return std::nullopt;
  std::uint64_t job = 0;
  const char* const number = reply.data() + key + kKey.size();
  if (std::from_chars(number, reply.data() + reply.size(), job).ec != std::errc()) return std::nullopt;
  return job;
}

/// The first prompt that was not encoded, or null.
const json* failed_prompt(const json& reply) {
  for (const json& prompt : reply.at("prompts")) {
    if (prompt.at("status") != "ok") return &prompt;
  }
  return nullptr;
}

void count_error(const json& error, Tally& tally) {
  tally.fail(error.at("code").get<std::string>(), error.at("message").get<std::string>());
}

DoneRequest done_request(const json& reply, double total_ms, std::uint64_t reader_bytes) {
  DoneRequest done;
  done.total_ms = total_ms;
  done.queue_ms = reply.at("ms").at("queue").get<double>();
  done.compute_ms = reply.at("ms").at("compute").get<double>();
  done.deliver_ms = reply.at("ms").at("deliver").get<double>();
  for (const json& prompt : reply.at("prompts")) {
    ++done.prompts;
    done.tokens += prompt.at("tokens").get<std::int64_t>();
  }
  done.reader_bytes = reader_bytes;
  done.cut = reply.value("cut", "");
  return done;
}

}  // namespace

BenchConnection::BenchConnection(ControlClient client, const BenchTarget& target, json fields,
                                 const PromptMaker& maker)
    : client_(std::move(client)), fields_(std::move(fields)), maker_(maker) {
  for (const BenchRank& rank : target.ranks)
    readers_.push_back(std::make_unique<RankReader>(rank, rank.copies));
}

void BenchConnection::run(RequestBudget& budget, Tally& tally, std::optional<std::int64_t> most) {
  try {
    for (std::int64_t sent = 0; !most || sent < *most; ++sent) {
      const std::optional<std::int64_t> number = budget.take();
      if (!number) return;
      send_one(*number, tally);
    }
  } catch (const ClientError& error) {
    if (!budget.stopped()) tally.fail("disconnected", error.what());
  } catch (const json::exception& error) {
    tally.fail("bad_reply", std::string("the daemon's reply is not as expected: ") + error.what());
  }
}

void BenchConnection::send_one(std::int64_t number, Tally& tally) {
  json request = fields_;
  request["prompts"] = maker_.prompts(number);
  const std::string line = client_.line_of(request);
  const auto sent = Clock::now();
  const std::string answer = client_.exchange(line);
  const std::optional<std::uint64_t> job = job_of(answer);
  ReadOutcome outcome;
  if (job) outcome = copy(*job);
  const std::chrono::duration<double, std::milli> total = Clock::now() - sent;
  if (job) let_go(*job);

  const json reply = json::parse(answer);
  if (!reply.value("ok", false)) {
    count_error(reply.at("error"), tally);
  } else if (!outcome.error_code.empty()) {
    tally.fail(outcome.error_code, outcome.error_message);
  } else if (const json* failed = failed_prompt(reply)) {
    count_error(failed->at("error"), tally);
  } else {
    tally.add(done_request(reply, total.count(), outcome.copied_bytes));
  }
}

ReadOutcome BenchConnection::copy(std::uint64_t job) {
  ReadOutcome all;
  for (const auto& reader : readers_) {
    if (reader->copies()) reader->begin(job);
  }
  for (const auto& reader : readers_) {
    if (!reader->copies()) continue;
    ReadOutcome outcome = reader->end();
    all.copied_bytes += outcome.copied_bytes;
    if (outcome.error_code.empty()) continue;
    all.error_code = std::move(outcome.error_code);
    all.error_message = std::move(outcome.error_message);
  }
  return all;
}

void BenchConnection::let_go(std::uint64_t job) {
  for (const auto& reader : readers_) {
    if (!reader->copies()) reader->begin(job);
  }
}

}  // namespace gemmad
