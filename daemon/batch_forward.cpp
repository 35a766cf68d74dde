#include "daemon/batch_forward.h"

#include <vector>

#include "comm/batch_plan.h"

namespace gemmad {

namespace {

struct PromptInHand {
  const JobInHand* job = nullptr;
  std::size_t index = 0;

  std::span<const std::int32_t> ids() const { return job->job->prompts[index].ids; }
};

/// Copies rows of the hidden states that a prompt's job asked for to their places, layer by layer as they
/// come.
class SegmentSink final : public HiddenStateSink {
 public:
  SegmentSink(std::int64_t num_hidden_states, Ops& ops)
      : copies_(static_cast<std::size_t>(num_hidden_states)), ops_(ops) {}

  void add(const PlacedTensor& tensor, std::span<std::byte> block, std::int64_t first_row) {
    copies_[static_cast<std::size_t>(tensor.hidden_state)].push_back(
        {first_row, block.data() + tensor.offset, tensor.shape});
  }

  /// Copies go beside the computation of the next state. The stream waits for those of the state before,
  /// whose memory the next but one takes.
  void hidden_state(std::int64_t index, ConstTensorView x, Stream stream) override {
    const Stream copies = ops_.copy_stream();
    ops_.wait_for(stream, copies);
    ops_.wait_for(copies, stream);
    const std::size_t row_bytes = static_cast<std::size_t>(x.shape[1]) * size_bytes(x.dtype);
    for (const Copy& copy : copies_[static_cast<std::size_t>(index)]) {
      const std::byte* rows = x.as<std::byte>() + static_cast<std::size_t>(copy.first_row) * row_bytes;
      ops_.copy_to_host({copy.destination, x.dtype, copy.shape}, {rows, x.dtype, copy.shape}, copies);
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

std::vector<PromptInHand> prompts_of(std::span<const JobInHand> jobs, const PartInHand& part) {
  std::vector<PromptInHand> prompts;
  for (const JobInHand& job : jobs) {
    if (job.plan->cut != part.cut) continue;
    for (std::size_t i = 0; i < job.plan->replicas.size(); ++i) {
      if (job.plan->replicas[i] == part.replica && job.job->prompts[i].ok()) prompts.push_back({&job, i});
    }
  }
  return prompts;
}

void forward(std::span<const PromptInHand> prompts, const PartInHand& part, const RouteTable& routes,
             int rank, Ops& ops) {
  SegmentSink sink(part.encoder->config().num_layers + 1, ops);
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> offsets{0};
  for (const PromptInHand& prompt : prompts) {
    for (const PlacedTensor& tensor : prompt.job->layout->prompts[prompt.index]) {
      if (routes.routes()[tensor.route].is_writer(rank)) sink.add(tensor, prompt.job->block, offsets.back());
    }
    ids.insert(ids.end(), prompt.ids().begin(), prompt.ids().end());
    offsets.push_back(static_cast<std::int64_t>(ids.size()));
  }
  part.encoder->forward({ids, offsets}, *part.links, sink);
}

}  // namespace

std::int64_t compute_part(std::span<const JobInHand> jobs, const PartInHand& part, const RouteTable& routes,
                          int rank, Ops& ops) {
  const std::vector<PromptInHand> prompts = prompts_of(jobs, part);
  std::vector<std::int64_t> tokens;
  std::int64_t total_tokens = 0;
  for (const PromptInHand& prompt : prompts) {
    tokens.push_back(static_cast<std::int64_t>(prompt.ids().size()));
    total_tokens += tokens.back();
  }
  const std::vector<std::size_t> bounds =
      cut_runs(tokens, part.encoder->max_batch_tokens(), ops.efficient_rows(), part.num_stages);
  for (std::size_t run = 0; run + 1 < bounds.size(); ++run) {
    const auto in_run = std::span(prompts).subspan(bounds[run], bounds[run + 1] - bounds[run]);
    // The last states of the run before are still being copied.
    ops.wait_for(ops.stream(), ops.copy_stream());
    forward(in_run, part, routes, rank, ops);
  }
  part.links->wait(ops.stream());
  ops.synchronize(ops.stream());
  ops.synchronize(ops.copy_stream());
  return total_tokens;
}

}  // namespace gemmad
