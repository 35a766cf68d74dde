#include "daemon/job_queue.h"

#include <thread>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kNoWait{0};

QueuedJob job(JobId id, std::size_t tokens = 1, const std::string& name = "",
              milliseconds deadline = milliseconds(60'000)) {
  QueuedJob queued;
  queued.job.id = id;
  queued.job.name = name;
  queued.job.prompts.resize(1);
  queued.job.prompts[0].ids.assign(tokens, 5);
  queued.submitted = Clock::now();
  queued.deadline = queued.submitted + deadline;
  return queued;
}

std::vector<JobId> ids(const std::vector<QueuedJob>& jobs) {
  std::vector<JobId> out;
  for (const QueuedJob& queued : jobs)
    out.push_back(queued.job.id);
  return out;
}

TEST_CASE("take gives jobs in the order of their arrival up to the token budget") {
  JobQueue queue(10);
  for (JobId id : {1, 2, 3})
    queue.push(job(id, 40));
  CHECK(ids(queue.take(100, kNoWait).jobs) == std::vector<JobId>{1, 2});
  queue.finished();
  CHECK(ids(queue.take(100, kNoWait).jobs) == std::vector<JobId>{3});
}

TEST_CASE("take gives a job larger than the budget alone") {
  JobQueue queue(10);
  queue.push(job(1, 500));
  queue.push(job(2, 1));
  CHECK(ids(queue.take(100, kNoWait).jobs) == std::vector<JobId>{1});
}

TEST_CASE("take gives a job that is to be alone by itself, and what is around it before and after") {
  JobQueue queue(10);
  for (JobId id : {1, 2, 3, 4})
    queue.push(job(id));
  QueuedJob alone = job(5);
  alone.job.is_alone = true;
  queue.push(std::move(alone));
  queue.push(job(6));
  CHECK(ids(queue.take(100, kNoWait).jobs) == std::vector<JobId>{1, 2, 3, 4});
  queue.finished();
  CHECK(ids(queue.take(100, kNoWait).jobs) == std::vector<JobId>{5});
  queue.finished();
  CHECK(ids(queue.take(100, kNoWait).jobs) == std::vector<JobId>{6});
}

TEST_CASE("take gives a job that was expected as soon as it comes") {
  JobQueue queue(10);
  std::thread control([&] {
    queue.expect();
    queue.push(job(1));
  });
  CHECK(ids(queue.take(100, milliseconds(60'000)).jobs) == std::vector<JobId>{1});
  control.join();
}

TEST_CASE("take waits no longer for a job that was expected and does not come") {
  JobQueue queue(10);
  queue.expect();
  CHECK(queue.take(100, milliseconds(1)).empty());
  CHECK(queue.take(100, kNoWait).empty());
}

TEST_CASE("a full queue refuses") {
  JobQueue queue(2);
  CHECK(queue.push(job(1)) == JobQueue::Admission::kAdmitted);
  CHECK(queue.push(job(2)) == JobQueue::Admission::kAdmitted);
  CHECK(queue.push(job(3)) == JobQueue::Admission::kFull);
}

TEST_CASE("a name that waits or runs is refused until its job has ended") {
  JobQueue queue(10);
  queue.push(job(1, 1, "x"));
  CHECK(queue.push(job(2, 1, "x")) == JobQueue::Admission::kNameWaits);
  REQUIRE(queue.take(10, kNoWait).jobs.size() == 1);
  CHECK(queue.push(job(3, 1, "x")) == JobQueue::Admission::kNameWaits);
  queue.finished();
  CHECK(queue.push(job(4, 1, "x")) == JobQueue::Admission::kAdmitted);
}

TEST_CASE("take waits for a push from another thread") {
  JobQueue queue(10);
  std::thread pusher([&] { queue.push(job(1)); });
  const JobQueue::Work work = queue.take(10, milliseconds(10'000));
  pusher.join();
  CHECK(ids(work.jobs) == std::vector<JobId>{1});
}

TEST_CASE("take returns empty when its time is over") {
  JobQueue queue(10);
  const JobQueue::Work work = queue.take(10, milliseconds(5));
  CHECK(work.empty());
  CHECK_FALSE(work.closed);
}

TEST_CASE("jobs put back come first, in their order, and not too soon") {
  JobQueue queue(10);
  for (JobId id : {1, 2})
    queue.push(job(id));
  auto taken = queue.take(100, kNoWait).jobs;
  queue.push(job(3));
  queue.put_back(std::move(taken), Clock::now() + milliseconds(20));
  queue.finished();
  CHECK(queue.take(100, kNoWait).empty());
  CHECK(ids(queue.take(100, milliseconds(10'000)).jobs) == std::vector<JobId>{1, 2, 3});
}

TEST_CASE("a job put back keeps its name") {
  JobQueue queue(10);
  queue.push(job(1, 1, "x"));
  queue.put_back(queue.take(100, kNoWait).jobs, Clock::now());
  queue.finished();
  CHECK(queue.push(job(2, 1, "x")) == JobQueue::Admission::kNameWaits);
}

TEST_CASE("a removed job is handed back once and its readers hear why") {
  JobQueue queue(10);
  queue.push(job(1, 1, "x"));
  REQUIRE(queue.remove(1, "cancelled", "why").has_value());
  CHECK_FALSE(queue.remove(1, "cancelled", "why").has_value());
  const JobQueue::Work work = queue.take(10, kNoWait);
  CHECK(work.jobs.empty());
  REQUIRE(work.failures.size() == 1);
  CHECK(work.failures[0].id == 1);
  CHECK(work.failures[0].name == "x");
  CHECK(work.failures[0].code == "cancelled");
}

TEST_CASE("a running job cannot be removed") {
  JobQueue queue(10);
  queue.push(job(1));
  queue.take(10, kNoWait);
  CHECK_FALSE(queue.remove(1, "cancelled", "why").has_value());
}

TEST_CASE("an expired job is not taken to run") {
  JobQueue queue(10);
  queue.push(job(1, 1, "", milliseconds(0)));
  queue.push(job(2));
  CHECK(ids(queue.take(10, kNoWait).jobs) == std::vector<JobId>{2});
  queue.finished();
  CHECK(ids(queue.take_expired(Clock::now())) == std::vector<JobId>{1});
  CHECK(queue.take(10, kNoWait).failures.at(0).code == "deadline");
}

TEST_CASE("an expired job fails with what it waited for") {
  JobQueue queue(10);
  QueuedJob waiting = job(1, 1, "", milliseconds(0));
  waiting.expiry_code = "buffers_exhausted";
  queue.push(std::move(waiting));
  CHECK(queue.take_expired(Clock::now()).at(0).expiry_code == "buffers_exhausted");
  CHECK(queue.take(10, kNoWait).failures.at(0).code == "buffers_exhausted");
}

TEST_CASE("next_deadline is the earliest of what waits") {
  JobQueue queue(10);
  CHECK_FALSE(queue.next_deadline().has_value());
  queue.push(job(1, 1, "", milliseconds(50'000)));
  QueuedJob sooner = job(2, 1, "", milliseconds(10'000));
  const auto deadline = sooner.deadline;
  queue.push(std::move(sooner));
  CHECK(queue.next_deadline() == deadline);
}

TEST_CASE("a closed queue refuses, gives out what waits, then says so") {
  JobQueue queue(10);
  queue.push(job(1));
  queue.close();
  CHECK(queue.push(job(2)) == JobQueue::Admission::kClosed);
  const JobQueue::Work last = queue.take(10, milliseconds(10'000));
  CHECK(ids(last.jobs) == std::vector<JobId>{1});
  CHECK_FALSE(last.closed);
  queue.finished();
  CHECK(queue.take(10, milliseconds(10'000)).closed);
}

TEST_CASE("remove_all empties a closed queue") {
  JobQueue queue(10);
  for (JobId id : {1, 2})
    queue.push(job(id));
  queue.close();
  CHECK(ids(queue.remove_all("shutting_down", "why")) == std::vector<JobId>{1, 2});
  const JobQueue::Work failures = queue.take(10, kNoWait);
  CHECK(failures.failures.size() == 2);
  CHECK_FALSE(failures.closed);
  CHECK(queue.take(10, kNoWait).closed);
}

TEST_CASE("orders go before jobs, all together and in their order") {
  JobQueue queue(10);
  queue.push(job(1));
  CHECK(queue.push(Order{OrderKind::kSleep, {}, 1}));
  CHECK(queue.push(Order{OrderKind::kWake, {}, 2}));
  const JobQueue::Work first = queue.take(10, milliseconds(10'000));
  REQUIRE(first.orders.size() == 2);
  CHECK(first.orders[0].ticket == 1);
  CHECK(first.orders[1].kind == OrderKind::kWake);
  CHECK(first.jobs.empty());
  CHECK(queue.num_running() == 0);
  const JobQueue::Work second = queue.take(10, kNoWait);
  CHECK(second.orders.empty());
  CHECK(ids(second.jobs) == std::vector<JobId>{1});
}

TEST_CASE("orders do not wait for the time of jobs that were put back") {
  JobQueue queue(10);
  queue.push(job(1));
  queue.put_back(queue.take(100, kNoWait).jobs, Clock::now() + std::chrono::hours(1));
  queue.finished();
  queue.push(Order{OrderKind::kSleep, {}, 1});
  CHECK(queue.take(100, milliseconds(10'000)).orders.size() == 1);
  CHECK(queue.num_waiting() == 1);
}

TEST_CASE("failures go along with orders") {
  JobQueue queue(10);
  queue.push(job(1));
  queue.remove(1, "cancelled", "why");
  queue.push(Order{OrderKind::kSleep, {}, 1});
  const JobQueue::Work work = queue.take(10, kNoWait);
  CHECK(work.orders.size() == 1);
  CHECK(work.failures.size() == 1);
}

TEST_CASE("take waits for an order from another thread") {
  JobQueue queue(10);
  std::thread pusher([&] { queue.push(Order{OrderKind::kWake, {}, 1}); });
  const JobQueue::Work work = queue.take(10, milliseconds(10'000));
  pusher.join();
  CHECK(work.orders.size() == 1);
}

TEST_CASE("too many orders are refused until some were taken") {
  JobQueue queue(10);
  int num_taken = 0;
  while (num_taken < 1000 && queue.push(Order{OrderKind::kWake, {}, 1}))
    ++num_taken;
  CHECK(num_taken < 1000);
  CHECK(queue.take(10, kNoWait).orders.size() == static_cast<std::size_t>(num_taken));
  CHECK(queue.push(Order{OrderKind::kWake, {}, 1}));
}

TEST_CASE("a closed queue takes no order, and gives out those that wait before it says so") {
  JobQueue queue(10);
  queue.push(Order{OrderKind::kWake, {}, 1});
  queue.close();
  CHECK_FALSE(queue.push(Order{OrderKind::kSleep, {}, 2}));
  const JobQueue::Work last = queue.take(10, kNoWait);
  CHECK(last.orders.size() == 1);
  CHECK_FALSE(last.closed);
  CHECK(queue.take(10, kNoWait).closed);
}

}  // namespace
}  // namespace gemmad
