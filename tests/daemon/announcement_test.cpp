#include "daemon/announcement.h"

#include <random>

#include "daemon/byte_codec.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

Announcement sample() {
  Announcement announcement;
  announcement.kind = AnnouncementKind::kBatch;
  Job job;
  job.id = 77;
  job.name = "clip";
  job.prefer = Preference::kSplit;
  job.readers = 3;
  job.outputs = {{0, 4, 8}, true, false, true, {false, true}};
  job.prompts.push_back({{2, 5, 262143}, true, EarlierPrompt{12, 3}, "", ""});
  job.is_alone = true;
  job.is_kept = true;
  job.prompts.push_back({{}, false, std::nullopt, "bad_token", "input_ids[0] is -1"});
  announcement.batch.jobs = {job, Job{}};
  announcement.batch.failures.push_back({5, "other", "deadline", "too late"});
  SequenceStart start{21, 1, {2, 9, 9}, 1, PromptImage{1, {255, 0, 7}}, {}};
  start.sampling.seed = 99;
  announcement.generation = {{19, 20}, {start, SequenceStart{}}};
  announcement.texts = {{30, "caption", 2, true, "a red fox", {}},
                        {31, "", 0, false, "", {"deadline", "too late"}}};
  announcement.forget = {4, 7};
  return announcement;
}

TEST_CASE("an announcement comes back as it was") {
  const Announcement out = decode_announcement(encode_announcement(sample()));
  CHECK(out.kind == AnnouncementKind::kBatch);
  REQUIRE(out.batch.jobs.size() == 2);
  const Job& job = out.batch.jobs[0];
  CHECK(job.id == 77);
  CHECK(job.name == "clip");
  CHECK(job.prefer == Preference::kSplit);
  CHECK(job.readers == 3);
  CHECK(job.outputs.hidden_states == std::vector<std::int64_t>{0, 4, 8});
  CHECK(job.outputs.last_hidden_state);
  CHECK_FALSE(job.outputs.features);
  CHECK(job.outputs.embeddings);
  CHECK_FALSE(job.outputs.wants(Modality::kVideo));
  CHECK(job.outputs.wants(Modality::kAudio));
  REQUIRE(job.prompts.size() == 2);
  CHECK(job.prompts[0].ids == std::vector<std::int32_t>{2, 5, 262143});
  CHECK(job.prompts[0].truncated);
  CHECK(job.prompts[0].earlier == EarlierPrompt{12, 3});
  CHECK_FALSE(job.prompts[0].is_computed());
  CHECK_FALSE(job.prompts[1].earlier.has_value());
  CHECK(job.is_alone);
  CHECK(job.is_kept);
  CHECK(out.forget == std::vector<JobId>{4, 7});
  CHECK(job.prompts[1].error_code == "bad_token");
  CHECK(job.prompts[1].error_message == "input_ids[0] is -1");
  REQUIRE(out.batch.failures.size() == 1);
  CHECK(out.batch.failures[0].name == "other");
  CHECK(out.batch.failures[0].code == "deadline");
}

TEST_CASE("sequences and texts come back as they were") {
  const Announcement out = decode_announcement(encode_announcement(sample()));
  CHECK(out.generation.ends == std::vector<JobId>{19, 20});
  REQUIRE(out.generation.begins.size() == 2);
  const SequenceStart& start = out.generation.begins[0];
  CHECK(start.id == 21);
  CHECK(start.replica == 1);
  CHECK(start.ids == std::vector<std::int32_t>{2, 9, 9});
  CHECK(start.num_generated == 1);
  REQUIRE(start.image.has_value());
  CHECK(start.image->first_row == 1);
  CHECK(start.image->pixels == std::vector<std::uint8_t>{255, 0, 7});
  CHECK(start.sampling == sample().generation.begins[0].sampling);
  CHECK_FALSE(out.generation.begins[1].image.has_value());
  REQUIRE(out.texts.size() == 2);
  CHECK(out.texts[0].name == "caption");
  CHECK(out.texts[0].readers == 2);
  CHECK(out.texts[0].ok);
  CHECK(out.texts[0].text == "a red fox");
  CHECK_FALSE(out.texts[1].ok);
  CHECK(out.texts[1].failure.code == "deadline");
}

TEST_CASE("an order comes back with its settings") {
  Announcement announcement;
  announcement.kind = AnnouncementKind::kOrder;
  announcement.order = {OrderKind::kSleep, R"({"mode": "sharded"})", 5};
  const Announcement out = decode_announcement(encode_announcement(announcement));
  CHECK(out.kind == AnnouncementKind::kOrder);
  CHECK(out.order.kind == OrderKind::kSleep);
  CHECK(out.order.settings == R"({"mode": "sharded"})");
  CHECK(out.order.ticket == 0);  // rank 0's own affair
}

TEST_CASE("an announcement of unknown kind is refused") {
  std::vector<std::byte> bytes = encode_announcement(sample());
  bytes[4] = std::byte{99};  // the kind stands behind the format
  CHECK_THROWS_AS(decode_announcement(bytes), CodecError);
}

TEST_CASE("heartbeat and stop are a few bytes") {
  for (AnnouncementKind kind : {AnnouncementKind::kHeartbeat, AnnouncementKind::kStop}) {
    const std::vector<std::byte> bytes = encode_announcement({kind, {}, {}, {}, {}, {}});
    CHECK(bytes.size() < 64);
    CHECK(decode_announcement(bytes).kind == kind);
  }
}

TEST_CASE("every cut of an announcement is refused") {
  const std::vector<std::byte> bytes = encode_announcement(sample());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    CHECK_THROWS_AS(decode_announcement(std::span(bytes).first(size)), CodecError);
  }
}

TEST_CASE("bytes after the end are refused") {
  std::vector<std::byte> bytes = encode_announcement(sample());
  bytes.push_back(std::byte{0});
  CHECK_THROWS_AS(decode_announcement(bytes), CodecError);
}

TEST_CASE("an announcement of another version is refused") {
  std::vector<std::byte> bytes = encode_announcement(sample());
  bytes[0] ^= std::byte{1};
  CHECK_THROWS_AS(decode_announcement(bytes), CodecError);
}

TEST_CASE("lengths beyond the message are refused before anything is allocated") {
  std::vector<std::byte> bytes = encode_announcement(sample());
  // The number of jobs stands behind format and kind.
  for (std::size_t i = 5; i < 13; ++i)
    bytes[i] = std::byte{0xff};
  CHECK_THROWS_AS(decode_announcement(bytes), CodecError);
}

}  // namespace
}  // namespace gemmad
