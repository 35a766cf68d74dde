#include "daemon/text_publisher.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>

namespace gemmad {

void TextPublisher::publish(const std::vector<TextNotice>& notices) {
  const std::int64_t readers_of_place = output_.places.ranks_beside(bootstrap_.info().rank);
  std::vector<Verdict> mine(notices.size(), Verdict::kReserved);
  for (std::size_t i = 0; i < notices.size(); ++i) {
    const TextNotice& notice = notices[i];
    if (!notice.ok || output_.store == nullptr) continue;
    const std::int64_t num_readers = notice.readers > 0 ? notice.readers : readers_of_place;
    mine[i] = verdict_of(output_.store->reserve(notice.id, notice.name, notice.text.size(), num_readers));
  }
  std::vector<Verdict> worst = mine;
  const std::vector<std::byte> all = bootstrap_.all_gather(std::as_bytes(std::span(mine)), exchange_timeout_);
  for (std::size_t i = 0; i < all.size(); ++i)
    worst[i % mine.size()] = std::max(worst[i % mine.size()], static_cast<Verdict>(all[i]));
  if (output_.store == nullptr) return;
  for (std::size_t i = 0; i < notices.size(); ++i)
    settle(notices[i], worst[i]);
}

void TextPublisher::settle(const TextNotice& notice, Verdict verdict) {
  ResultStore& store = *output_.store;
  if (!notice.ok) return store.fail(notice.id, notice.name, notice.failure);
  const std::uint64_t size_bytes = notice.text.size();
  if (verdict != Verdict::kReserved) {
    const JobFailure failure = failure_of(verdict, notice.name, size_bytes, output_.segment.bytes().size());
    spdlog::warn("text {} reaches no reader: {}", notice.id, failure.message);
    // A refused name belongs to another result, whose readers must not hear of this failure.
    return store.fail(notice.id, verdict == Verdict::kNameInUse ? "" : notice.name, failure);
  }
  const std::span<std::byte> block = store.block(notice.id);
  if (size_bytes > 0) std::memcpy(block.data(), notice.text.data(), size_bytes);
  PromptResult result;
  result.ok = true;
  result.tensors.push_back({"text",
                            DType::kU8,
                            {static_cast<std::int64_t>(size_bytes)},
                            store.block_offset(notice.id),
                            size_bytes});
  store.publish(notice.id, {result});
}

}  // namespace gemmad
