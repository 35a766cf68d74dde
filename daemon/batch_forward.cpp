#include "daemon/batch_forward.h"

namespace gemmad {

namespace {

struct OwnPrompt {
  const JobInHand* job = nullptr;
  std::size_t index = 0;

  std::span<const std::int32_t> ids() const { return job->job->prompts[index].ids; }
  std::int64_t num_tokens() const { return static_cast<std::int64_t>(ids().size()); }
};

/// Copies rows of the hidden states that a prompt's job asked for to their places, layer by layer as they
/// come.
class SegmentSink final : public HiddenStateSink {
 public:
  SegmentSink(std::int64_t num_hidden_states, Ops& ops)
      : copies_(static_cast<std::size_t>(num_hidden_states)), ops_(ops) {}

  void add_prompt(const OwnPrompt& prompt, std::int64_t first_row) {
    for (const PlacedTensor& tensor : prompt.job->layout->prompts[prompt.index]) {
      std::byte* destination = prompt.job->block.data() + tensor.offset;
      copies_[static_cast<std::size_t>(tensor.hidden_state)].push_back(
          {first_row, destination, tensor.shape});
    }
  }

  void hidden_state(std::int64_t index, ConstTensorView x, Stream stream) override {
    const std::size_t row_bytes = static_cast<std::size_t>(x.shape[1]) * size_bytes(x.dtype);
    for (const Copy& copy : copies_[static_cast<std::size_t>(index)]) {
      const std::byte* rows = x.as<std::byte>() + static_cast<std::size_t>(copy.first_row) * row_bytes;
      ops_.copy_to_host({copy.destination, x.dtype, copy.shape}, {rows, x.dtype, copy.shape}, stream);
    }
  }

 private:
  struct Copy {
    std::int64_t first_row;
    std::byte* destination;
    Shape shape;  // [n, D]
  };

  std::vector<std::vector<Copy>> copies_;  // by hidden state
  Ops& ops_;
};

std::vector<OwnPrompt> own_prompts(std::span<const JobInHand> jobs, int rank) {
  std::vector<OwnPrompt> prompts;
  for (const JobInHand& job : jobs) {
    for (std::size_t i = 0; i < job.owners.size(); ++i) {
      if (job.owners[i] == rank && job.job->prompts[i].ok()) prompts.push_back({&job, i});
    }
  }
  return prompts;
}

void forward(std::span<const OwnPrompt> prompts, TextEncoder& encoder, Ops& ops) {
  SegmentSink sink(encoder.config().num_layers + 1, ops);
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> offsets{0};
  for (const OwnPrompt& prompt : prompts) {
    sink.add_prompt(prompt, offsets.back());
    ids.insert(ids.end(), prompt.ids().begin(), prompt.ids().end());
    offsets.push_back(static_cast<std::int64_t>(ids.size()));
  }
  encoder.forward({ids, offsets}, sink);
}

}  // namespace

std::int64_t compute_own_prompts(std::span<const JobInHand> jobs, int rank, TextEncoder& encoder, Ops& ops) {
  const std::vector<OwnPrompt> prompts = own_prompts(jobs, rank);
  std::int64_t total_tokens = 0;
  for (std::size_t first = 0; first < prompts.size();) {
    std::int64_t tokens = 0;
    std::size_t end = first;
    while (end < prompts.size() &&
           (end == first || tokens + prompts[end].num_tokens() <= encoder.max_batch_tokens())) {
      tokens += prompts[end++].num_tokens();
    }
    forward(std::span(prompts).subspan(first, end - first), encoder, ops);
    total_tokens += tokens;
    first = end;
  }
  ops.synchronize(ops.stream());
  return total_tokens;
}

}  // namespace gemmad
