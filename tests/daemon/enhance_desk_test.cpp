#include "daemon/enhance_desk.h"

#include <nlohmann/json.hpp>
#include <semaphore>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kNoTime{0};

/// A desk before a queue that the test takes from as an engine would. A prompt of n letters renders to n ids;
/// "bad" is refused; "hold" waits for the gate.
struct DeskFixture {
  struct Encode {
    Asker asker;
    EncodeRequest request;
    std::string enhanced;
  };

  JobQueue queue{8, 3};
  Metrics metrics;
  JobIds ids;
  std::vector<std::pair<LineServer::ClientId, json>> sent;
  std::vector<Encode> encodes;
  std::counting_semaphore<> gate{0};
  std::counting_semaphore<> rendered{0};
  EnhanceDesk desk{
      {queue, metrics, ids,
       [this](LineServer::ClientId client, const std::string& line) {
         sent.emplace_back(client, json::parse(line));
       },
       [this](const Asker& asker, const EncodeRequest& request, RequestTimes, std::string enhanced) {
         encodes.push_back({asker, request, std::move(enhanced)});
       },
       [this](const std::string& prompt, const EnhanceOptions&) {
         if (prompt == "hold") gate.acquire();
         if (prompt == "bad") throw RenderError("bad_image", "no picture");
         return RenderedPrompt{std::vector<std::int32_t>(prompt.size(), 5), std::nullopt};
       },
       [this] { rendered.release(); }, 3, 64}};

  ~DeskFixture() { gate.release(100); }

  static RequestTimes times() { return {Clock::now(), Clock::now() + std::chrono::seconds(60)}; }
  static EnhanceRequest request(const std::string& prompt, const std::string& name = {}) {
    EnhanceRequest request;
    request.prompt = prompt;
    request.name = name;
    return request;
  }
  static EncodeRequest encode(const std::string& prompt, const std::string& name = {}) {
    EncodeRequest request;
    request.prompts = {prompt, "other"};
    request.name = name;
    request.enhance.emplace();
    return request;
  }
  void render() {
    rendered.acquire();
    desk.take_rendered();
  }
  /// Takes a request until it is queued.
  void take(LineServer::ClientId client, const RequestId& id, EnhanceRequest request) {
    desk.take({client, id}, std::move(request), times());
    render();
  }
  void take(LineServer::ClientId client, const RequestId& id, EncodeRequest request) {
    desk.take({client, id}, std::move(request), times());
    render();
  }
  JobQueue::Work work() { return queue.take(1000, kNoTime); }
  Enhancement queued() {
    JobQueue::Work taken = work();
    REQUIRE(taken.enhancements.size() == 1);
    return taken.enhancements[0].enhancement;
  }
  static EnhancementOutcome good(JobId id, const std::string& text = "a better dog") {
    EnhancementOutcome outcome;
    outcome.id = id;
    outcome.ok = true;
    outcome.text = text;
    outcome.raw_text = "**" + text;
    outcome.stop = StopReason::kLength;
    outcome.tokens_in = 7;
    outcome.tokens_out = 5;
    outcome.decode_ms = 100;
    return outcome;
  }
  static EnhancementOutcome failed(JobId id, const std::string& code) {
    EnhancementOutcome outcome;
    outcome.id = id;
    outcome.failure = {code, "so it is"};
    return outcome;
  }
  /// As the engine does it.
  void end(const EnhancementOutcome& outcome) {
    queue.ended(outcome.id);
    desk.enhanced(outcome);
  }
  std::string code_of_last() const { return sent.back().second.at("error").at("code"); }
  bool counted(const std::string& series) const {
    return metrics.text().find(series + "\n") != std::string::npos;
  }
};

TEST_CASE_METHOD(DeskFixture, "A request is queued as its options say, once its prompt is rendered") {
  EnhanceRequest asked = request("abc", "n");
  asked.readers = 2;
  asked.options.sampling.seed = 4;
  asked.options.cleans = false;
  asked.options.max_new_tokens = 9;
  const RequestTimes its_times = times();
  desk.take({1, "7"}, asked, its_times);
  CHECK(desk.num_waiting() == 1);
  render();
  const JobQueue::Work taken = work();
  REQUIRE(taken.enhancements.size() == 1);
  CHECK(taken.enhancements[0].submitted == its_times.submitted);
  CHECK(taken.enhancements[0].deadline == its_times.deadline);
  const Enhancement& enhancement = taken.enhancements[0].enhancement;
  CHECK(enhancement.id == 1);
  CHECK(enhancement.name == "n");
  CHECK(enhancement.readers == 2);
  CHECK(enhancement.ids == std::vector<std::int32_t>(3, 5));
  CHECK(enhancement.sampling.seed == 4);
  CHECK_FALSE(enhancement.cleans);
  CHECK(enhancement.max_new_tokens == 9);
  CHECK(sent.empty());
}

TEST_CASE_METHOD(DeskFixture, "The reply tells text, counts, speed, reason and times") {
  take(1, "\"a\"", request("abc", "n"));
  end(good(queued().id));
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].first == 1);
  json reply = sent[0].second;
  CHECK(reply["ms"].at("total") >= 0);
  reply["ms"].erase("total");
  CHECK(reply == json({{"id", "a"},
                       {"ok", true},
                       {"job", 1},
                       {"name", "n"},
                       {"text", "a better dog"},
                       {"raw_text", "**a better dog"},
                       {"tokens_in", 7},
                       {"tokens_out", 5},
                       {"tokens_per_s", 40.0},
                       {"stop", "length"},
                       {"ms", {{"queue", 0.0}, {"prefill", 0.0}, {"decode", 100.0}}}}));
  CHECK_FALSE(desk.owes(1));
  CHECK(counted("gemmad_enhancements_total{result=\"ok\"} 1"));
  CHECK(counted("gemmad_generated_tokens_total 5"));
}

TEST_CASE_METHOD(DeskFixture, "Pieces are events for those who asked for a stream, and mark what runs") {
  EnhanceRequest streamed = request("abc");
  streamed.options.streams = true;
  take(1, "7", streamed);
  take(2, "8", request("def"));
  CHECK(desk.num_running() == 0);
  desk.generated({1, {10, 11}, "a b"});
  desk.generated({2, {10}, "a"});
  desk.generated({9, {10}, "nobody's"});
  CHECK(desk.num_running() == 2);
  CHECK(desk.num_waiting() == 0);
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].first == 1);
  CHECK(sent[0].second == json({{"id", 7}, {"event", "token"}, {"text", "a b"}, {"ids", {10, 11}}}));
}

TEST_CASE_METHOD(DeskFixture, "A failure of the engine is the reply") {
  take(1, "7", request("abc"));
  end(failed(1, "deadline"));
  CHECK(code_of_last() == "deadline");
  CHECK(counted("gemmad_enhancements_total{result=\"deadline\"} 1"));
}

TEST_CASE_METHOD(DeskFixture, "A prompt that cannot be rendered is refused, and its readers hear") {
  desk.take({1, "7"}, request("bad", "n"), times());
  render();
  CHECK(code_of_last() == "bad_image");
  CHECK(counted("gemmad_enhancements_total{result=\"bad_image\"} 1"));
  const JobQueue::Work taken = work();
  CHECK(taken.enhancements.empty());
  REQUIRE(taken.failures.size() == 1);
  CHECK(taken.failures[0].name == "n");
  CHECK(taken.failures[0].code == "bad_image");
  CHECK_FALSE(desk.holds_name("n"));
}

TEST_CASE_METHOD(DeskFixture, "Without a wish the continuation takes what the context leaves, 512 at most") {
  take(1, "1", request(std::string(60, 'p')));
  CHECK(queued().max_new_tokens == 4);
  take(1, "2", request(std::string(63, 'p')));
  CHECK(queued().max_new_tokens == 1);
  take(1, "3", request(std::string(64, 'p')));
  CHECK(code_of_last() == "too_long");
  CHECK(sent.back().second["error"]["message"].get<std::string>().find("64 tokens") != std::string::npos);
}

TEST_CASE_METHOD(DeskFixture, "A continuation that does not fit behind its prompt is refused") {
  EnhanceRequest wish = request(std::string(60, 'p'));
  wish.options.max_new_tokens = 4;
  take(1, "1", wish);
  CHECK(queued().max_new_tokens == 4);
  wish.options.max_new_tokens = 5;
  take(1, "2", wish);
  CHECK(code_of_last() == "too_long");
}

TEST_CASE_METHOD(DeskFixture, "More than may wait or run are refused") {
  for (const char* id : {"1", "2", "3"})
    take(1, id, request("abc"));
  desk.take({1, "4"}, request("abc"), times());
  CHECK(code_of_last() == "queue_full");
  CHECK(sent.back().second["id"] == 4);
}

TEST_CASE_METHOD(DeskFixture, "What a client that has gone left in the engine still counts") {
  for (const char* id : {"1", "2", "3"})
    take(1, id, request("abc", std::string("n") + id));
  desk.forget(1);
  take(2, "1", request("abc"));
  CHECK(code_of_last() == "queue_full");
  end(failed(1, "cancelled"));
  take(2, "2", request("abc"));
  CHECK(desk.owes(2, "2"));
}

TEST_CASE_METHOD(DeskFixture, "A name is used once at a time, from the request to its end") {
  desk.take({1, "1"}, request("hold", "n"), times());
  CHECK(desk.holds_name("n"));
  desk.take({1, "2"}, request("abc", "n"), times());
  CHECK(code_of_last() == "name_in_use");
  gate.release();
  render();
  desk.take({1, "3"}, request("abc", "n"), times());
  CHECK(code_of_last() == "name_in_use");
  desk.take({1, "4"}, encode("abc", "n"), times());
  CHECK(code_of_last() == "name_in_use");
  end(good(queued().id));
  take(1, "5", request("abc", "n"));
  CHECK(queued().name == "n");
}

TEST_CASE_METHOD(DeskFixture,
                 "A name that a job took while the prompt was rendered is refused without word to readers") {
  desk.take({1, "1"}, request("hold", "n"), times());
  QueuedJob job;
  job.job.id = ids.take();
  job.job.name = "n";
  job.deadline = Clock::now() + std::chrono::seconds(60);
  queue.push(std::move(job));
  gate.release();
  render();
  CHECK(code_of_last() == "name_in_use");
  CHECK(work().failures.empty());
}

TEST_CASE_METHOD(DeskFixture,
                 "An encode follows its enhancement with the new text, and knows what became of it") {
  take(1, "7", encode("abc", "n"));
  CHECK(desk.holds_name("n"));
  const Enhancement enhancement = queued();
  CHECK(enhancement.name.empty());
  end(good(enhancement.id));
  CHECK(sent.empty());
  REQUIRE(encodes.size() == 1);
  CHECK(encodes[0].asker.client == 1);
  CHECK(encodes[0].asker.request == "7");
  CHECK(std::get<std::string>(encodes[0].request.prompts[0]) == "a better dog");
  CHECK(std::get<std::string>(encodes[0].request.prompts[1]) == "other");
  CHECK(encodes[0].request.name == "n");
  CHECK_FALSE(encodes[0].request.enhance.has_value());
  const json enhanced = json::parse(encodes[0].enhanced);
  CHECK(enhanced["text"] == "a better dog");
  CHECK(enhanced["stop"] == "length");
  CHECK_FALSE(desk.holds_name("n"));
  CHECK_FALSE(desk.owes(1));
}

TEST_CASE_METHOD(DeskFixture, "An encode whose enhancement fails fails with it, and its readers hear") {
  take(1, "7", encode("abc", "n"));
  end(failed(queued().id, "deadline"));
  CHECK(code_of_last() == "deadline");
  CHECK(encodes.empty());
  const JobQueue::Work taken = work();
  REQUIRE(taken.failures.size() == 1);
  CHECK(taken.failures[0].name == "n");
  CHECK(taken.failures[0].code == "deadline");
  CHECK(counted("gemmad_jobs_total{result=\"deadline\"} 1"));
}

TEST_CASE_METHOD(DeskFixture, "A request is found by number, name and, by its own client, by id") {
  take(1, "7", request("abc", "n"));
  take(2, "7", encode("abc", "e"));
  const auto find = [&](LineServer::ClientId client, auto member, auto value) {
    CancelRequest cancel;
    cancel.*member = value;
    return desk.find(client, cancel);
  };
  CHECK(find(9, &CancelRequest::job, JobId{2}) == 2);
  CHECK(find(9, &CancelRequest::job, JobId{3}) == 0);
  CHECK(find(9, &CancelRequest::name, "n") == 1);
  CHECK(find(9, &CancelRequest::name, "e") == 2);
  CHECK(find(9, &CancelRequest::name, "x") == 0);
  CHECK(find(1, &CancelRequest::request, "7") == 1);
  CHECK(find(2, &CancelRequest::request, "7") == 2);
  CHECK(find(3, &CancelRequest::request, "7") == 0);
}

TEST_CASE_METHOD(DeskFixture, "What is cancelled while its prompt is rendered ends at once") {
  desk.take({1, "7"}, request("hold", "n"), times());
  CHECK(desk.cancel(1));
  CHECK(code_of_last() == "cancelled");
  CHECK_FALSE(desk.owes(1));
  gate.release();
  JobQueue::Work taken = work();
  CHECK(taken.enhancements.empty());
  REQUIRE(taken.failures.size() == 1);
  CHECK(taken.failures[0].name == "n");
  CHECK(counted("gemmad_enhancements_total{result=\"cancelled\"} 1"));
}

TEST_CASE_METHOD(DeskFixture, "A prompt that comes from the renderer after its end is dropped") {
  desk.take({1, "7"}, request("hold"), times());
  // It is at hand for sure once the gate has let it through; drop() can then not take it back.
  gate.release();
  rendered.acquire();
  CHECK(desk.cancel(1));
  desk.take_rendered();
  CHECK(work().enhancements.empty());
  CHECK(sent.size() == 1);
}

TEST_CASE_METHOD(DeskFixture,
                 "What is cancelled in the engine ends with the engine's word, which is asked for once") {
  take(1, "7", request("abc"));
  CHECK_FALSE(desk.cancel(1));
  CHECK_FALSE(desk.cancel(1));
  CHECK(sent.empty());
  const JobQueue::Work taken = work();
  REQUIRE(taken.given_up.size() == 1);
  CHECK(taken.given_up[0].id == 1);
  CHECK(taken.given_up[0].code == "cancelled");
  end(failed(1, "cancelled"));
  CHECK(code_of_last() == "cancelled");
}

TEST_CASE_METHOD(DeskFixture, "A cancel that came too late leaves the text; an encode does not follow it") {
  take(1, "7", request("abc"));
  take(1, "8", encode("abc"));
  CHECK_FALSE(desk.cancel(1));
  CHECK_FALSE(desk.cancel(2));
  end(good(1));
  CHECK(sent.back().second["ok"] == true);
  end(good(2));
  CHECK(sent.back().second["id"] == 8);
  CHECK(code_of_last() == "cancelled");
  CHECK(encodes.empty());
}

TEST_CASE_METHOD(DeskFixture, "A client that goes takes with it what it asked for, and no other's") {
  take(1, "7", request("abc"));
  take(2, "7", request("abc"));
  desk.take({1, "8"}, encode("hold", "e"), times());
  desk.forget(1);
  CHECK_FALSE(desk.owes(1));
  CHECK(desk.owes(2));
  const JobQueue::Work taken = work();
  REQUIRE(taken.given_up.size() == 1);
  CHECK(taken.given_up[0].id == 1);
  REQUIRE(taken.failures.size() == 1);
  CHECK(taken.failures[0].name == "e");
  end(failed(1, "cancelled"));
  CHECK(sent.empty());
  CHECK(counted("gemmad_enhancements_total{result=\"cancelled\"} 1"));
}

TEST_CASE_METHOD(DeskFixture, "The queue is kept open for what is yet to be queued") {
  CHECK_FALSE(desk.will_queue());
  take(1, "7", request("abc"));
  CHECK_FALSE(desk.will_queue());
  take(1, "8", encode("abc"));
  CHECK(desk.will_queue());
  CHECK_FALSE(desk.cancel(2));
  CHECK_FALSE(desk.will_queue());
  desk.take({1, "9"}, request("hold"), times());
  CHECK(desk.will_queue());
}

TEST_CASE_METHOD(DeskFixture, "At the end all are given up, each once") {
  take(1, "7", request("abc"));
  desk.take({1, "8"}, request("hold"), times());
  desk.end_all("shutting_down", "it stops");
  desk.end_all("shutting_down", "it stops");
  CHECK(sent.size() == 1);
  CHECK(sent[0].second["id"] == 8);
  CHECK(code_of_last() == "shutting_down");
  CHECK(work().given_up.size() == 1);
  end(failed(1, "shutting_down"));
  CHECK(sent.size() == 2);
}

TEST_CASE_METHOD(DeskFixture, "A queue that is closed refuses what comes from the renderer") {
  desk.take({1, "7"}, request("hold"), times());
  queue.close();
  gate.release();
  render();
  CHECK(code_of_last() == "shutting_down");
}

TEST_CASE("A desk without a renderer rewrites nothing") {
  JobQueue queue(1);
  Metrics metrics;
  JobIds ids;
  std::vector<std::string> sent;
  EnhanceDesk desk(
      {queue, metrics, ids, [&](auto, const std::string& line) { sent.push_back(line); }, {}, {}, {}, 1, 64});
  desk.take({1, "7"}, EnhanceRequest{}, DeskFixture::times());
  REQUIRE(sent.size() == 1);
  CHECK(json::parse(sent[0])["error"]["code"] == "no_enhancer");
  desk.take_rendered();
}

}  // namespace
}  // namespace gemmad
