#include "daemon/ctl/rank_reader.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/ctl/control_client.h"

namespace gemmad {

namespace {

constexpr std::chrono::seconds kReaderTimeout{10};
// Results are copied round and round here: more than a core's own cache holds, yet many readers find room.
constexpr std::size_t kBufferBytes = 16 << 20;

Reader connect(const LocalRank& rank) {
  try {
    return Reader::connect(rank.reader_socket, kReaderTimeout);
  } catch (const ReaderError& error) {
    throw ClientError("the reader of rank " + std::to_string(rank.rank) + ": " + error.what());
  }
}

/// Kernels before Linux 5.14 refuse; the first copies then meet page faults.
void have_pages_at_hand(const Reader& reader) {
#ifdef MADV_POPULATE_READ
  ::madvise(const_cast<void*>(reader.segment_data()), reader.segment_bytes(), MADV_POPULATE_READ);
#else
  static_cast<void>(reader);
#endif
}

}  // namespace

RankReader::RankReader(const LocalRank& rank, bool copies) : reader_(connect(rank)) {
  if (!copies) return;
  have_pages_at_hand(reader_);
  buffer_ = std::make_unique<std::byte[]>(kBufferBytes);
}

void RankReader::begin(std::uint64_t job) {
  helper_.begin([this, job] { outcome_ = read(job); });
}

ReadOutcome RankReader::end() {
  helper_.wait();
  return std::exchange(outcome_, {});
}

ReadOutcome RankReader::read(std::uint64_t job) {
  ReadOutcome outcome;
  try {
    const Reader::Result result = reader_.acquire(job, kReaderTimeout);
    if (!copies()) return outcome;
    for (const Reader::Prompt& prompt : result.prompts()) {
      for (const Reader::Tensor& tensor : prompt.tensors) {
        copy(tensor);
        outcome.copied_bytes += tensor.size_bytes;
      }
    }
  } catch (const ReaderError& error) {
    outcome.error_code = "reader_" + error.code();
    outcome.error_message = "rank " + std::to_string(reader_.rank()) + ": " + error.what();
  }
  return outcome;
}

void RankReader::copy(const Reader::Tensor& tensor) {
  const auto* data = static_cast<const std::byte*>(tensor.data);
  for (std::size_t left = tensor.size_bytes; left > 0;) {
    if (filled_bytes_ == kBufferBytes) filled_bytes_ = 0;
    const std::size_t size = std::min(left, kBufferBytes - filled_bytes_);
    std::memcpy(buffer_.get() + filled_bytes_, data, size);
    filled_bytes_ += size;
    data += size;
    left -= size;
  }
}

}  // namespace gemmad
