#include "daemon/announcement.h"

#include <array>

#include "daemon/byte_codec.h"

namespace gemmad {

namespace {

constexpr std::uint32_t kFormat = 0x67640006;

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
  out.value(job.is_alone);
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
  job.is_alone = in.value<bool>();
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

void write_start(ByteWriter& out, const SequenceStart& start) {
  out.value(start.id);
  out.value(start.replica);
  out.array(std::span<const std::int32_t>(start.ids));
  out.value(start.num_generated);
  out.value(start.image.has_value());
  if (start.image) {
    out.value(start.image->first_row);
    out.array(std::span<const std::uint8_t>(start.image->pixels));
  }
  out.value(start.sampling);
}

SequenceStart read_start(ByteReader& in) {
  SequenceStart start;
  start.id = in.value<JobId>();
  start.replica = in.value<std::int32_t>();
  start.ids = in.array<std::int32_t>();
  start.num_generated = in.value<std::uint64_t>();
  if (in.value<bool>()) {
    start.image.emplace();
    start.image->first_row = in.value<std::int64_t>();
    start.image->pixels = in.array<std::uint8_t>();
  }
  start.sampling = in.value<SamplingParams>();
  return start;
}

void write_notice(ByteWriter& out, const TextNotice& notice) {
  out.value(notice.id);
  out.text(notice.name);
  out.value(notice.readers);
  out.value(notice.ok);
  out.text(notice.text);
  out.text(notice.failure.code);
  out.text(notice.failure.message);
}

TextNotice read_notice(ByteReader& in) {
  TextNotice notice;
  notice.id = in.value<JobId>();
  notice.name = in.text();
  notice.readers = in.value<std::int64_t>();
  notice.ok = in.value<bool>();
  notice.text = in.text();
  notice.failure.code = in.text();
  notice.failure.message = in.text();
  return notice;
}

template <typename Item>
void write_all(ByteWriter& out, const std::vector<Item>& items, void (*write)(ByteWriter&, const Item&)) {
  out.value(static_cast<std::uint64_t>(items.size()));
  for (const Item& item : items)
    write(out, item);
}

template <typename Item>
std::vector<Item> read_all(ByteReader& in, Item (*read)(ByteReader&)) {
  std::vector<Item> items(in.count());
  for (Item& item : items)
    item = read(in);
  return items;
}

}  // namespace

std::vector<std::byte> encode_announcement(const Announcement& announcement) {
  ByteWriter out;
  out.value(kFormat);
  out.value(announcement.kind);
  write_all(out, announcement.batch.jobs, write_job);
  write_all(out, announcement.batch.failures, write_failure);
  out.value(announcement.order.kind);
  out.text(announcement.order.settings);
  out.array(std::span<const JobId>(announcement.generation.ends));
  write_all(out, announcement.generation.begins, write_start);
  write_all(out, announcement.texts, write_notice);
  out.array(std::span<const JobId>(announcement.forget));
  return out.take();
}

Announcement decode_announcement(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  if (in.value<std::uint32_t>() != kFormat) throw CodecError("an announcement of another build of gemmad");
  Announcement announcement;
  announcement.kind = in.value<AnnouncementKind>();
  if (announcement.kind > AnnouncementKind::kStop) throw CodecError("an announcement of unknown kind");
  announcement.batch.jobs = read_all(in, read_job);
  announcement.batch.failures = read_all(in, read_failure);
  announcement.order.kind = in.value<OrderKind>();
  announcement.order.settings = in.text();
  announcement.generation.ends = in.array<JobId>();
  announcement.generation.begins = read_all(in, read_start);
  announcement.texts = read_all(in, read_notice);
  announcement.forget = in.array<JobId>();
  if (!in.at_end()) throw CodecError("bytes after the end of an announcement");
  return announcement;
}

}  // namespace gemmad
