#include "daemon/encode_desk.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

using nlohmann::json;

/// A desk before a queue of two, without a tokenizer.
struct EncodeDeskFixture {
  JobQueue queue{2};
  Metrics metrics;
  JobIds ids;
  std::vector<std::pair<LineServer::ClientId, json>> sent;
  EncodeDesk desk{{nullptr,
                   queue,
                   metrics,
                   ids,
                   [this](LineServer::ClientId client, const std::string& line) {
                     sent.emplace_back(client, json::parse(line));
                   },
                   {1024, 100},
                   2}};

  bool admit(LineServer::ClientId client, const RequestId& id, const std::string& name = {},
             std::string enhanced = {}) {
    EncodeRequest request;
    request.prompts = {std::vector<std::int64_t>{2, 5}};
    request.name = name;
    request.return_input_ids = true;
    return desk.admit({client, id}, request, {Clock::now(), Clock::now() + std::chrono::seconds(60)},
                      std::move(enhanced));
  }
  std::vector<QueuedJob> taken() { return queue.take(1000, std::chrono::milliseconds(0)).jobs; }
  static CompletedJob published(JobId id) {
    CompletedJob job;
    job.id = id;
    job.outcome.kind = JobOutcome::Kind::kPublished;
    job.outcome.prompts.resize(1);
    job.outcome.prompts[0].ok = true;
    return job;
  }
  std::string code_of_last() const { return sent.back().second.at("error").at("code"); }
  JobId find(LineServer::ClientId client, const RequestId& id) const {
    CancelRequest cancel;
    cancel.request = id;
    return desk.find(client, cancel);
  }
};

TEST_CASE_METHOD(EncodeDeskFixture, "An encode is queued under a new number, and its asker has the reply") {
  CHECK(admit(4, "7", "n", R"({"text":"x"})"));
  CHECK(desk.owes(4, "7"));
  CHECK_FALSE(desk.owes(4, "8"));
  CHECK_FALSE(desk.owes(5));
  const auto jobs = taken();
  REQUIRE(jobs.size() == 1);
  CHECK(jobs[0].job.id == 1);
  CHECK(jobs[0].job.prompts[0].ids == std::vector<std::int32_t>{2, 5});
  desk.answer(published(1));
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].first == 4);
  CHECK(sent[0].second["id"] == 7);
  CHECK(sent[0].second["name"] == "n");
  CHECK(sent[0].second["enhanced"]["text"] == "x");
  CHECK(sent[0].second["prompts"][0]["input_ids"] == json({2, 5}));
  CHECK_FALSE(desk.owes());
  CHECK_FALSE(desk.owes(4));
}

TEST_CASE_METHOD(EncodeDeskFixture, "What the queue refuses is refused, and nothing is owed") {
  CHECK(admit(4, "1", "n"));
  CHECK_FALSE(admit(4, "2", "n"));
  CHECK(code_of_last() == "name_in_use");
  CHECK(admit(4, "3"));
  CHECK_FALSE(admit(4, "4"));
  CHECK(code_of_last() == "queue_full");
  CHECK(sent.back().second["error"]["message"].get<std::string>().find("2 requests wait") !=
        std::string::npos);
  CHECK_FALSE(desk.owes(4, "4"));
  queue.close();
  CHECK_FALSE(admit(4, "5"));
  CHECK(code_of_last() == "shutting_down");
}

TEST_CASE_METHOD(EncodeDeskFixture, "An encode that waits can be cancelled, one that runs cannot") {
  admit(4, "1", "n");
  CHECK(find(4, "1") == 1);
  CHECK(find(5, "1") == 0);
  taken();
  CHECK_FALSE(desk.cancel(1));
  admit(4, "2");
  CHECK(desk.cancel(2));
  CHECK(code_of_last() == "cancelled");
  CHECK(sent.size() == 1);
  CHECK(find(4, "2") == 0);
}

TEST_CASE_METHOD(EncodeDeskFixture, "An encode is found by number and name, whoever asks") {
  admit(4, "1", "n");
  CancelRequest by_name;
  by_name.name = "n";
  CHECK(desk.find(9, by_name) == 1);
  by_name.name = "other";
  CHECK(desk.find(9, by_name) == 0);
  CancelRequest by_job;
  by_job.job = 1;
  CHECK(desk.find(9, by_job) == 1);
  by_job.job = 2;
  CHECK(desk.find(9, by_job) == 0);
}

TEST_CASE_METHOD(EncodeDeskFixture,
                 "A client that goes takes with it what waits, and what runs has no reply") {
  admit(4, "1");
  taken();
  admit(4, "2", "n");
  desk.forget(4);
  desk.forget(5);
  CHECK_FALSE(desk.owes());
  const auto work = queue.take(1000, std::chrono::milliseconds(0));
  CHECK(work.jobs.empty());
  REQUIRE(work.failures.size() == 1);
  CHECK(work.failures[0].name == "n");
  desk.answer(published(1));
  CHECK(sent.empty());
}

TEST_CASE_METHOD(EncodeDeskFixture, "What waits at the end is answered") {
  admit(4, "1");
  desk.end_waiting("shutting_down", "it stops");
  CHECK(code_of_last() == "shutting_down");
  CHECK_FALSE(desk.owes());
}

}  // namespace
}  // namespace gemmad
