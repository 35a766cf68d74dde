#include "daemon/control_server.h"

#include <cstdlib>
#include <filesystem>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/ctl/control_client.h"
#include "kernels/base/file_descriptor.h"
#include "tests/support/catch.h"
#include "tests/support/small_text_config.h"

namespace gemmad {
namespace {

using nlohmann::json;

/// A new folder of mode 0700, short enough for the path of a socket; removed at the end.
class SocketFolder {
 public:
  SocketFolder() {
    std::string pattern = "/tmp/gemmad-test-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw SystemError(errno, "make a folder " + pattern);
    path_ = pattern;
  }
  SocketFolder(const SocketFolder&) = delete;
  SocketFolder& operator=(const SocketFolder&) = delete;
  ~SocketFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string socket() const { return path_ + "/c.sock"; }

 private:
  std::string path_;
};

DaemonFacts facts_of(const Tokenizer& tokenizer) {
  DaemonFacts facts;
  facts.config.enhance_context = 64;
  facts.config.enhance_queue = 4;
  facts.config.drain_ms = 20'000;
  facts.model = small_text_config();
  facts.model.vocab_size = static_cast<std::int64_t>(tokenizer.vocab_size());
  facts.enhancer = EnhancerFacts{"/m", "gemma3", 100, false};
  facts.ready_at = Clock::now();
  return facts;
}

/// A control server before an engine of paper. It rewrites every prompt in two pieces to "better dog", but
/// where max_new_tokens is 1 holds it after the first piece, until release() or until it is given up; it
/// encodes every job to results without tensors.
class ServerFixture {
 public:
  ServerFixture()
      : server_(UnixListener::bind(folder_.socket()),
                {&tokenizer_, queue_, status_, metrics_, [] {}, render, std::chrono::microseconds(0)},
                facts_of(tokenizer_), {}, [] { return DaemonConfig{}; }),
        engine_([this] { serve(); }) {}
  ServerFixture(const ServerFixture&) = delete;
  ServerFixture& operator=(const ServerFixture&) = delete;
  ~ServerFixture() {
    queue_.close();
    release();
    engine_.join();
    server_.join();
  }

  ControlClient client() const { return ControlClient::connect(folder_.socket(), std::chrono::seconds(10)); }
  json call(const json& request) const {
    ControlClient mine = client();
    return mine.call(request);
  }
  /// A request on a connection of its own, under way.
  std::future<json> begin(const json& request) const {
    return std::async(std::launch::async, [this, request] { return call(request); });
  }
  /// Asks until `condition` holds of the daemon's health.
  template <typename Condition>
  void until(ControlClient& asker, Condition condition) const {
    while (!condition(asker.call({{"op", "health"}})))
      std::this_thread::yield();
  }
  void until_running(ControlClient& asker) const {
    until(asker, [](const json& health) { return health["enhancements"]["running"] == 1; });
  }

  /// Goes on with what the engine holds.
  void release() {
    std::vector<JobId> held;
    {
      const std::lock_guard lock(mutex_);
      held.swap(held_);
    }
    for (const JobId id : held)
      finish(id);
  }

 private:
  static RenderedPrompt render(const std::string& prompt, const EnhanceOptions&) {
    if (prompt == "bad") throw RenderError("bad_text", "no UTF-8");
    return {std::vector<std::int32_t>(prompt.size(), 5), std::nullopt};
  }

  void serve() {
    for (;;) {
      JobQueue::Work work = queue_.take(1000, std::chrono::milliseconds(20));
      if (work.closed) break;
      for (const FailureNotice& notice : work.given_up)
        end_early(notice);
      for (const QueuedEnhancement& queued : work.enhancements)
        rewrite(queued.enhancement);
      std::vector<CompletedJob> completed;
      for (const QueuedJob& job : work.jobs)
        completed.push_back(encoded(job.job));
      queue_.finished();
      if (!completed.empty()) server_.completed(std::move(completed));
    }
    server_.drained();
  }

  void rewrite(const Enhancement& enhancement) {
    const bool holds = enhancement.max_new_tokens == 1;
    if (holds) {
      const std::lock_guard lock(mutex_);
      held_.push_back(enhancement.id);
    }
    // Whoever sees it running may go on at once.
    server_.generated({{enhancement.id, {7}, "better "}});
    if (!holds) finish(enhancement.id);
  }

  void finish(JobId id) {
    server_.generated({{id, {8, 9}, "dog"}});
    EnhancementOutcome outcome;
    outcome.id = id;
    outcome.ok = true;
    outcome.text = outcome.raw_text = "better dog";
    outcome.tokens_out = 3;
    queue_.ended(id);
    server_.enhanced(outcome);
  }

  void end_early(const FailureNotice& notice) {
    {
      const std::lock_guard lock(mutex_);
      if (std::erase(held_, notice.id) == 0) return;
    }
    EnhancementOutcome outcome;
    outcome.id = notice.id;
    outcome.failure = {notice.code, notice.message};
    queue_.ended(outcome.id);
    server_.enhanced(outcome);
  }

  static CompletedJob encoded(const Job& job) {
    CompletedJob completed;
    completed.id = job.id;
    completed.outcome.kind = JobOutcome::Kind::kPublished;
    completed.outcome.prompts.resize(job.prompts.size());
    for (PromptResult& prompt : completed.outcome.prompts)
      prompt.ok = true;
    return completed;
  }

  SocketFolder folder_;
  Tokenizer tokenizer_ = Tokenizer::load(std::string(GEMMAD_TEST_DATA) + "/tokenizer/tiny-gemma3.json");
  JobQueue queue_{8, 4};
  StatusBoard status_;
  Metrics metrics_;
  std::mutex mutex_;  // of held_
  std::vector<JobId> held_;
  ControlServer server_;
  std::thread engine_;
};

json t2v(const std::string& prompt, const json& options = json::object()) {
  json request = {{"op", "enhance_t2v"}, {"prompt", prompt}};
  request.update(options);
  return request;
}

/// An encode whose first prompt the engine holds.
json held_encode(const std::string& name) {
  return {{"op", "encode"},
          {"prompts", {"a dog", "a cat"}},
          {"name", name},
          {"enhance", {{"max_new_tokens", 1}}}};
}

TEST_CASE_METHOD(ServerFixture, "An enhancement that streams has its events before its reply") {
  ControlClient asker = client();
  std::string text;
  const json reply = asker.call(t2v("a dog", {{"stream", true}}),
                                [&](const json& event) { text += event.at("text").get<std::string>(); });
  CHECK(text == "better dog");
  CHECK(reply["text"] == "better dog");
  CHECK(reply["stop"] == "end");
  int events = 0;
  CHECK(asker.call(t2v("a dog"), [&](const json&) { ++events; })["ok"] == true);
  CHECK(events == 0);
}

TEST_CASE_METHOD(ServerFixture, "What cannot be rewritten is refused with its reason") {
  CHECK(call(t2v("bad"))["error"]["code"] == "bad_text");
  CHECK(call(t2v(std::string(64, 'p')))["error"]["code"] == "too_long");
  CHECK(call({{"op", "enhance_i2v"}, {"prompt", "a"}, {"image", {{"file", "AA=="}}}})["error"]["code"] ==
        "no_vision");
}

TEST_CASE_METHOD(ServerFixture, "An encode rewrites its first prompt and tells what it became") {
  ControlClient asker = client();
  std::string streamed;
  const json reply = asker.call({{"op", "encode"},
                                 {"prompts", {"a dog", "a cat"}},
                                 {"return_input_ids", true},
                                 {"enhance", {{"stream", true}}}},
                                [&](const json& event) { streamed += event.at("text").get<std::string>(); });
  CHECK(streamed == "better dog");
  CHECK(reply["ok"] == true);
  CHECK(reply["enhanced"]["text"] == "better dog");
  CHECK(reply["enhanced"]["job"] != reply["job"]);
  const json plain =
      call({{"op", "encode"}, {"prompts", {"better dog", "a cat"}}, {"return_input_ids", true}});
  CHECK_FALSE(plain.contains("enhanced"));
  REQUIRE(reply["prompts"].size() == 2);
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(reply["prompts"][i]["input_ids"] == plain["prompts"][i]["input_ids"]);
}

TEST_CASE_METHOD(ServerFixture, "An enhancement that runs can be cancelled, by whoever knows its name") {
  ControlClient other = client();
  std::future<json> held = begin(t2v("a dog", {{"max_new_tokens", 1}, {"name", "n"}}));
  until_running(other);
  const json cancelled = other.call({{"op", "cancel"}, {"name", "n"}});
  CHECK(cancelled["cancelled"] == true);
  CHECK(cancelled["state"] == "ending");
  CHECK(held.get()["error"]["code"] == "cancelled");
  CHECK(other.call({{"op", "cancel"}, {"name", "n"}})["error"]["code"] == "not_found");
}

TEST_CASE_METHOD(ServerFixture, "A name that an encode will have after its enhancement is taken") {
  ControlClient other = client();
  std::future<json> held = begin(held_encode("n"));
  until_running(other);
  CHECK(other.call({{"op", "encode"}, {"prompts", {"a"}}, {"name", "n"}})["error"]["code"] == "name_in_use");
  CHECK(other.call(t2v("a", {{"name", "n"}}))["error"]["code"] == "name_in_use");
  release();
  CHECK(held.get()["name"] == "n");
  CHECK(other.call({{"op", "encode"}, {"prompts", {"a"}}, {"name", "n"}})["ok"] == true);
}

TEST_CASE_METHOD(ServerFixture, "A client that leaves gives up its enhancement") {
  ControlClient other = client();
  ControlClient leaver = client();
  std::future<std::string> end = std::async(std::launch::async, [&] {
    try {
      return leaver.call(t2v("a dog", {{"max_new_tokens", 1}})).dump();
    } catch (const ClientError&) {
      return std::string("no reply");
    }
  });
  until_running(other);
  leaver.hang_up();
  CHECK(end.get() == "no reply");
  const std::string wanted = "gemmad_enhancements_total{result=\"cancelled\"} 1\n";
  while (other.call({{"op", "metrics"}})["text"].get<std::string>().find(wanted) == std::string::npos)
    std::this_thread::yield();
}

TEST_CASE_METHOD(ServerFixture,
                 "A daemon that stops finishes an encode that is still to follow its enhancement") {
  ControlClient other = client();
  std::future<json> held = begin(held_encode("n"));
  until_running(other);
  std::future<json> stopped = begin({{"op", "shutdown"}});
  until(other, [](const json& health) { return health["status"] == "draining"; });
  CHECK(other.call(t2v("a"))["error"]["code"] == "shutting_down");
  release();
  const json reply = held.get();
  CHECK(reply["ok"] == true);
  CHECK(reply["prompts"].size() == 2);
  CHECK(stopped.get()["stopped"] == true);
}

TEST_CASE_METHOD(ServerFixture, "Health, info and metrics tell of enhancements") {
  ControlClient asker = client();
  CHECK(asker.call({{"op", "info"}})["enhance"]["model"] == "/m");
  CHECK(asker.call({{"op", "health"}})["enhancements"] == json({{"waiting", 0}, {"running", 0}}));
  asker.call(t2v("a dog"));
  const std::string text = asker.call({{"op", "metrics"}})["text"];
  CHECK(text.find("gemmad_enhancements_total{result=\"ok\"} 1\n") != std::string::npos);
  CHECK(text.find("gemmad_generated_tokens_total 3\n") != std::string::npos);
  CHECK(text.find("gemmad_requests_total{op=\"enhance_t2v\"} 1\n") != std::string::npos);
}

}  // namespace
}  // namespace gemmad
