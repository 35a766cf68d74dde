#include "daemon/enhancements.h"

#include <string>
#include <vector>

#include "tests/daemon/tokenizer/small_tokenizer.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

using std::chrono::milliseconds;

// Pieces of the small tokenizer.
constexpr std::int32_t kA = 261, kB = 262, kSpaceA = 266;
constexpr std::int32_t kStop = 106;

const Enhancements::TimePoint kStart{std::chrono::hours(1)};

struct Book {
  Tokenizer tokenizer = Tokenizer::parse(test::small_tokenizer().dump(), "test");
  Enhancements enhancements{tokenizer, {1, kStop}, 2};

  void add(JobId id, std::int64_t max_new_tokens = 100) {
    QueuedEnhancement queued;
    queued.enhancement.id = id;
    queued.enhancement.name = "n" + std::to_string(id);
    queued.enhancement.ids = {2, kA, kB};
    queued.enhancement.max_new_tokens = max_new_tokens;
    queued.submitted = kStart;
    queued.deadline = kStart + milliseconds(1000);
    enhancements.add(queued);
  }

  std::vector<GeneratedPiece> hear(JobId id, std::int32_t token, milliseconds after = milliseconds(10)) {
    return enhancements.hear({{{id, SequenceNews::Kind::kToken, token}}, ""}, kStart + after);
  }
};

std::vector<JobId> begun(const GenerationOrder& order) {
  std::vector<JobId> ids;
  for (const SequenceStart& start : order.begins)
    ids.push_back(start.id);
  return ids;
}

TEST_CASE("One begins with its prompt, comes on by pieces, and ends with the model's turn") {
  Book book;
  book.add(1);
  REQUIRE(book.enhancements.is_active());
  const GenerationOrder order = book.enhancements.next_order(kStart + milliseconds(3));
  REQUIRE(begun(order) == std::vector<JobId>{1});
  CHECK(order.begins[0].ids == std::vector<std::int32_t>{2, kA, kB});

  const auto first = book.hear(1, kA, milliseconds(10));
  REQUIRE(first.size() == 1);
  CHECK(first[0].ids == std::vector<std::int32_t>{kA});
  CHECK(first[0].text == "a");
  CHECK(book.hear(1, kSpaceA, milliseconds(14)).at(0).text == " a");
  CHECK(book.hear(1, kStop, milliseconds(20)).empty());

  const auto ended = book.enhancements.take_ended();
  REQUIRE(ended.size() == 1);
  const EnhancementOutcome& outcome = ended[0].outcome;
  CHECK(outcome.ok);
  CHECK(outcome.text == "a a");
  CHECK(outcome.stop == StopReason::kEnd);
  CHECK(outcome.tokens_in == 3);
  CHECK(outcome.tokens_out == 3);
  CHECK(outcome.queue_ms == 3);
  CHECK(outcome.prefill_ms == 7);
  CHECK(outcome.decode_ms == 10);
  CHECK(ended[0].notice.ok);
  CHECK(ended[0].notice.name == "n1");
  CHECK(ended[0].notice.text == "a a");
  CHECK_FALSE(book.enhancements.is_active());
}

TEST_CASE("What has ended leaves the ranks with the next step") {
  Book book;
  book.add(1);
  book.enhancements.next_order(kStart);
  book.hear(1, kStop);
  book.add(2);
  const GenerationOrder order = book.enhancements.next_order(kStart);
  CHECK(order.ends == std::vector<JobId>{1});
  CHECK(begun(order) == std::vector<JobId>{2});
}

TEST_CASE("What has ended leaves the ranks with the next step that there is, whatever comes before it") {
  Book book;
  book.add(1);
  book.enhancements.next_order(kStart);
  book.enhancements.give_up({1, "", "cancelled", "it was cancelled"});
  // Nothing runs: no rank hears of this order.
  CHECK(book.enhancements.next_order(kStart).ends.empty());
  CHECK_FALSE(book.enhancements.has_running());
  book.enhancements.restart({0});
  book.add(2);
  const GenerationOrder order = book.enhancements.next_order(kStart);
  CHECK(order.ends == std::vector<JobId>{1});
  CHECK(begun(order) == std::vector<JobId>{2});
}

TEST_CASE("As many run as there are slots; the next one waits for one that is free") {
  Book book;
  for (JobId id = 1; id <= 3; ++id)
    book.add(id);
  CHECK(begun(book.enhancements.next_order(kStart)) == std::vector<JobId>{1, 2});
  CHECK(begun(book.enhancements.next_order(kStart)).empty());
  book.hear(2, kStop);
  CHECK(begun(book.enhancements.next_order(kStart)) == std::vector<JobId>{3});
}

TEST_CASE("Sequences go to the replica with the fewest") {
  Book book;
  book.enhancements.restart({0, 1});
  for (JobId id = 1; id <= 4; ++id)
    book.add(id);
  const GenerationOrder order = book.enhancements.next_order(kStart);
  std::vector<std::int32_t> replicas;
  for (const SequenceStart& start : order.begins)
    replicas.push_back(start.replica);
  CHECK(replicas == std::vector<std::int32_t>{0, 1, 0, 1});
}

TEST_CASE("The limit of new tokens ends one, the last token included") {
  Book book;
  book.add(1, 2);
  book.enhancements.next_order(kStart);
  book.hear(1, kA);
  book.hear(1, kB);
  const auto ended = book.enhancements.take_ended();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].outcome.stop == StopReason::kLength);
  CHECK(ended[0].outcome.raw_text == "ab");
}

TEST_CASE("One that goes in circles ends, and its text is cut where the second round began") {
  Book book;
  book.add(1, 1000);
  book.enhancements.next_order(kStart);
  std::vector<Enhancements::Ended> ended;
  std::string streamed;
  for (int i = 0; i < 200 && ended.empty(); ++i) {
    for (const GeneratedPiece& piece : book.hear(1, i % 2 == 0 ? kA : kB))
      streamed += piece.text;
    ended = book.enhancements.take_ended();
  }
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].outcome.stop == StopReason::kRepetition);
  CHECK(ended[0].outcome.text == "ab");
  CHECK(streamed.size() > 2);
}

TEST_CASE("A deadline ends one that waits and one that runs, with what it had") {
  Book book;
  for (JobId id = 1; id <= 3; ++id)
    book.add(id);
  book.enhancements.next_order(kStart);
  book.hear(1, kA);
  CHECK(book.enhancements.next_order(kStart + milliseconds(1000)).begins.empty());
  const auto ended = book.enhancements.take_ended();
  REQUIRE(ended.size() == 3);
  for (const Enhancements::Ended& one : ended) {
    CHECK_FALSE(one.outcome.ok);
    CHECK(one.outcome.failure.code == "deadline");
    CHECK_FALSE(one.notice.ok);
  }
  CHECK(ended[0].outcome.tokens_out == 1);
}

TEST_CASE("One that is given up ends with the reason, and later news of it count for nothing") {
  Book book;
  book.add(1);
  book.enhancements.next_order(kStart);
  book.enhancements.give_up({1, "", "cancelled", "it was cancelled"});
  book.enhancements.give_up({9, "", "cancelled", "never there"});
  CHECK(book.hear(1, kA).empty());
  const auto ended = book.enhancements.take_ended();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].outcome.failure.code == "cancelled");
}

TEST_CASE("A failure on a rank ends the sequence with what that rank said, once") {
  Book book;
  book.add(1);
  book.enhancements.next_order(kStart);
  const SequenceNews failed{1, SequenceNews::Kind::kFailed, 0};
  book.enhancements.hear({{failed, failed}, "rank 1: out of memory"}, kStart);
  const auto ended = book.enhancements.take_ended();
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].outcome.failure.code == "internal");
  CHECK(ended[0].outcome.failure.message == "rank 1: out of memory");
}

TEST_CASE("After a restart sequences begin anew with what they had, and go on with its text") {
  Book book;
  book.add(1);
  book.enhancements.next_order(kStart);
  book.hear(1, kA);
  book.hear(1, kB);
  book.enhancements.restart({3});
  const GenerationOrder order = book.enhancements.next_order(kStart);
  CHECK(order.ends.empty());
  REQUIRE(order.begins.size() == 1);
  CHECK(order.begins[0].ids == std::vector<std::int32_t>{2, kA, kB, kA, kB});
  CHECK(order.begins[0].num_generated == 2);
  CHECK(order.begins[0].replica == 3);
  book.hear(1, kSpaceA);
  book.hear(1, kStop);
  CHECK(book.enhancements.take_ended().at(0).outcome.text == "ab a");
}

TEST_CASE("Text that was asked for as it is stays so") {
  Book book;
  QueuedEnhancement queued;
  queued.enhancement.id = 5;
  queued.enhancement.ids = {2};
  queued.enhancement.cleans = false;
  queued.submitted = kStart;
  queued.deadline = kStart + milliseconds(1000);
  book.enhancements.add(queued);
  book.enhancements.next_order(kStart);
  book.hear(5, kSpaceA);
  book.hear(5, kStop);
  const auto ended = book.enhancements.take_ended();
  CHECK(ended.at(0).outcome.text == " a");
  CHECK(ended.at(0).outcome.raw_text == " a");
}

}  // namespace
}  // namespace gemmad
