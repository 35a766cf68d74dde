#include "daemon/announcement.h"

#include <array>

#include "daemon/byte_codec.h"

namespace gemmad {

namespace {

constexpr std::uint32_t kFormat = 0x67640004;

void write_prompt(ByteWriter& out, const JobPrompt& prompt) {
  out.array(std::span<const std::int32_t>(prompt.ids));
  out.value(prompt.truncated);
  out.value(prompt.earlier.has_value());
  out.value(prompt.earlier.value_or(EarlierPrompt{}));
  out.text(prompt.error_code);
  out.text(prompt.error_message);
}

JobPrompt read_prompt(ByteReader& in) {
  JobPrompt prompt;
  prompt.ids = in.array<std::int32_t>();
  prompt.truncated = in.value<bool>();
  const bool has_earlier = in.value<bool>();
  const auto earlier = in.value<EarlierPrompt>();
  if (has_earlier) prompt.earlier = earlier;
  prompt.error_code = in.text();
  prompt.error_message = in.text();
  return prompt;
}

void write_job(ByteWriter& out, const Job& job) {
  out.value(job.id);
  out.text(job.name);
  out.value(job.prefer);
  out.value(job.readers);
  out.array(std::span<const std::int64_t>(job.outputs.hidden_states));
  out.value(job.outputs.last_hidden_state);
  out.value(job.outputs.features);
  out.value(job.outputs.embeddings);
  out.value(job.outputs.modalities);
  out.value(static_cast<std::uint64_t>(job.prompts.size()));
  for (const JobPrompt& prompt : job.prompts)
    write_prompt(out, prompt);
  out.value(job.is_kept);
}

Job read_job(ByteReader& in) {
  Job job;
  job.id = in.value<JobId>();
  job.name = in.text();
  job.prefer = in.value<Preference>();
  job.readers = in.value<std::int64_t>();
  job.outputs.hidden_states = in.array<std::int64_t>();
  job.outputs.last_hidden_state = in.value<bool>();
  job.outputs.features = in.value<bool>();
  job.outputs.embeddings = in.value<bool>();
  job.outputs.modalities = in.value<std::array<bool, 2>>();
  job.prompts.resize(in.count());
  for (JobPrompt& prompt : job.prompts)
    prompt = read_prompt(in);
  job.is_kept = in.value<bool>();
  return job;
}

void write_failure(ByteWriter& out, const FailureNotice& failure) {
  out.value(failure.id);
  out.text(failure.name);
  out.text(failure.code);
  out.text(failure.message);
}

FailureNotice read_failure(ByteReader& in) {
  FailureNotice failure;
  failure.id = in.value<JobId>();
  failure.name = in.text();
  failure.code = in.text();
  failure.message = in.text();
  return failure;
}

}  // namespace

std::vector<std::byte> encode_announcement(const Announcement& announcement) {
  ByteWriter out;
  out.value(kFormat);
  out.value(announcement.kind);
  out.value(static_cast<std::uint64_t>(announcement.batch.jobs.size()));
  for (const Job& job : announcement.batch.jobs)
    write_job(out, job);
  out.value(static_cast<std::uint64_t>(announcement.batch.failures.size()));
  for (const FailureNotice& failure : announcement.batch.failures)
    write_failure(out, failure);
  out.value(announcement.order.kind);
  out.text(announcement.order.settings);
  out.array(std::span<const JobId>(announcement.forget));
  return out.take();
}

Announcement decode_announcement(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  if (in.value<std::uint32_t>() != kFormat) throw CodecError("an announcement of another build of gemmad");
  Announcement announcement;
  announcement.kind = in.value<AnnouncementKind>();
  if (announcement.kind > AnnouncementKind::kStop) throw CodecError("an announcement of unknown kind");
  announcement.batch.jobs.resize(in.count());
  for (Job& job : announcement.batch.jobs)
    job = read_job(in);
  announcement.batch.failures.resize(in.count());
  for (FailureNotice& failure : announcement.batch.failures)
    failure = read_failure(in);
  announcement.order.kind = in.value<OrderKind>();
  announcement.order.settings = in.text();
  announcement.forget = in.array<JobId>();
  if (!in.at_end()) throw CodecError("bytes after the end of an announcement");
  return announcement;
}

}  // namespace gemmad
