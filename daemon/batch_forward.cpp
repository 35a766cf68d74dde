#include "daemon/batch_forward.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/batch_plan.h"

namespace gemmad {

namespace {

struct PromptInHand {
  const JobInHand* job = nullptr;
  std::size_t index = 0;

  std::span<const std::int32_t> ids() const { return job->job->prompts[index].ids; }
};

/// Prompts that go through a replica in one forward pass.
using Run = std::vector<PromptInHand>;

/// What is wanted of one output of a run by one route. Rows are those of what its holder has of it: of a
/// hidden state all of the run, of features and embeddings those of the holder's units, one after another.
struct Transfer {
  OutputId output;
  std::size_t route = 0;
  std::int64_t width = 0;
  std::vector<DeliveredRows> pieces;  // by rising rows

  std::int64_t first_row() const { return pieces.front().first_row; }
  std::int64_t end_row() const { return pieces.back().first_row + pieces.back().num_rows; }
};

/// The passes of one replica.
std::vector<Run> runs_of(std::span<const JobInHand> jobs, const CutInHand& cut, int replica, const Ops& ops) {
  std::vector<PromptInHand> prompts;
  std::vector<std::int64_t> tokens;
  for (const JobInHand& job : jobs) {
    if (job.plan->cut != cut.cut) continue;
    for (std::size_t i = 0; i < job.plan->replicas.size(); ++i) {
      if (job.plan->replicas[i] != replica || !job.job->prompts[i].is_computed()) continue;
      prompts.push_back({&job, i});
      tokens.push_back(static_cast<std::int64_t>(prompts.back().ids().size()));
    }
  }
  const Replica& shards = cut.replicas[static_cast<std::size_t>(replica)];
  const int num_stages = shards.strategy == Strategy::kLayer ? static_cast<int>(shards.shards.size()) : 1;
  const std::vector<std::size_t> bounds =
      cut_runs(tokens, cut.max_batch_tokens, ops.efficient_rows(), num_stages);
  std::vector<Run> runs;
  for (std::size_t run = 0; run + 1 < bounds.size(); ++run) {
    runs.emplace_back(prompts.begin() + static_cast<std::ptrdiff_t>(bounds[run]),
                      prompts.begin() + static_cast<std::ptrdiff_t>(bounds[run + 1]));
  }
  return runs;
}

/// What the processor on `rank` makes of a run.
std::vector<ProcessorUnit> units_of(const Run& run, int rank) {
  std::vector<ProcessorUnit> units;
  for (std::size_t prompt = 0; prompt < run.size(); ++prompt) {
    const OutputSelection& outputs = run[prompt].job->job->outputs;
    if (!outputs.needs_processor()) continue;
    const std::array<int, 2>& ranks = run[prompt].job->plan->processors[run[prompt].index];
    for (const Modality modality : kModalities) {
      if (ranks[static_cast<std::size_t>(modality)] == rank)
        units.push_back({prompt, modality, outputs.features, outputs.embeddings});
    }
  }
  return units;
}

/// Where the rows of each prompt's tensors begin in what their holders have, prompt by prompt.
class RowCounter {
 public:
  /// Of a tensor of `prompt`. All its tensors come one after another.
  std::int64_t first_row(const PromptInHand& prompt, const PlacedTensor& tensor) {
    if (tensor.output.kind == OutputKind::kHiddenState) return state_rows_;
    return rows_[{tensor.output, rank_of(prompt, tensor.output.index)}];
  }
  /// Goes on to the next prompt.
  void pass(const PromptInHand& prompt) {
    const auto num_tokens = static_cast<std::int64_t>(prompt.ids().size());
    state_rows_ += num_tokens;
    const OutputSelection& outputs = prompt.job->job->outputs;
    if (!outputs.needs_processor()) return;
    for (std::int64_t modality = 0; modality < 2; ++modality) {
      const int rank = rank_of(prompt, modality);
      if (rank < 0) continue;
      // Features are computed on the way to embeddings, wanted or not.
      rows_[{{OutputKind::kFeatures, modality}, rank}] += num_tokens;
      if (outputs.embeddings) rows_[{{OutputKind::kEmbeddings, modality}, rank}] += kPaddedLength;
    }
  }

 private:
  static int rank_of(const PromptInHand& prompt, std::int64_t modality) {
    return prompt.job->plan->processors[prompt.index][static_cast<std::size_t>(modality)];
  }

  std::int64_t state_rows_ = 0;
  std::map<std::pair<OutputId, int>, std::int64_t> rows_;
};

/// What is to be delivered of a run over the routes that are `wanted`, by rising outputs. The same on every
/// rank, but for the destinations. Devices wait for it: a list of all pieces, sorted, takes the least time.
template <typename Wanted>
std::vector<Transfer> transfers_of(const Run& run, const Wanted& wanted) {
  struct Piece {
    const PlacedTensor* tensor;
    DeliveredRows rows;
    auto key() const { return std::tie(tensor->output, tensor->route); }
  };
  std::vector<Piece> pieces;
  RowCounter counter;
  for (const PromptInHand& prompt : run) {
    const std::vector<PlacedTensor>& tensors = prompt.job->layout->prompts[prompt.index];
    pieces.reserve(pieces.size() + tensors.size());
    for (const PlacedTensor& tensor : tensors) {
      if (!wanted(tensor.route)) continue;
      pieces.push_back(
          {&tensor,
           {counter.first_row(prompt, tensor), tensor.shape[0], prompt.job->block.data() + tensor.offset}});
    }
    counter.pass(prompt);
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.key() < b.key(); });
  std::vector<Transfer> transfers;
  for (const Piece& piece : pieces) {
    const PlacedTensor& tensor = *piece.tensor;
    const bool is_new = transfers.empty() || transfers.back().output != tensor.output ||
                        transfers.back().route != tensor.route;
    if (is_new) transfers.push_back({tensor.output, tensor.route, tensor.shape[1], {}});
    transfers.back().pieces.push_back(piece.rows);
  }
  return transfers;
}

/// A transfer that this rank takes part in, as its source or as a receiver.
struct Hop {
  const Transfer* transfer = nullptr;
  bool is_outgoing = false;
};

/// All that travels from and to this rank while a run is computed, by rising outputs and routes. Every rank
/// keeps to that order, whatever it sends and receives: a transfer waits on the device until all have put it
/// there, and putting other work there (a kernel's first use, a recording) may wait for the device. So two
/// ranks that each began with their own would wait for each other for ever.
std::vector<Hop> hops_of(const CutInHand& cut, const std::vector<Transfer>& outgoing,
                         const std::vector<Transfer>& incoming) {
  std::vector<Hop> hops;
  if (cut.delivery == nullptr) return hops;
  for (const Transfer& transfer : outgoing) {
    if (cut.delivery->sends(transfer.route)) hops.push_back({&transfer, true});
  }
  for (const Transfer& transfer : incoming)
    hops.push_back({&transfer, false});
  std::sort(hops.begin(), hops.end(), [](const Hop& a, const Hop& b) {
    return std::tie(a.transfer->output, a.transfer->route) < std::tie(b.transfer->output, b.transfer->route);
  });
  return hops;
}

/// Rows of an output that are there: `x` [num_rows, width] holds those from first_row on, at `ready`.
struct RowsInHand {
  OutputId output;
  std::int64_t first_row = 0;
  ConstTensorView x;
  Moment ready;

  std::int64_t end_row() const { return first_row + x.shape[0]; }
};

/// To the next stage, where there is one.
void hand_sums_on(const PartInHand& part, Ops& ops) {
  if (part.encoder->weights().layer_range.end == part.encoder->config().num_layers) return;
  for (const TensorView& sums : part.processor->sums())
    part.links->send(sums, ops.stream());
}

/// Writes the results of a pass to their places, and hands them on, as they come; feeds the processor.
class RunSink final : public HiddenStateSink, public ProcessorSink {
 public:
  /// `own`: of the run that is computed; `incoming`: what others compute meanwhile.
  RunSink(const CutInHand& cut, Ops& ops, const std::vector<Transfer>& own,
          const std::vector<Transfer>& incoming)
      : cut_(cut), ops_(ops), own_(own), hops_(hops_of(cut, own, incoming)) {}

  /// Copies go beside the computation of the next state. The stream waits for those of the state before,
  /// whose memory the next but one takes.
  void hidden_state(std::int64_t index, ConstTensorView x, const Moment& ready, bool is_kept) override {
    if (!is_kept) hold(ops_.stream());
    take({{OutputKind::kHiddenState, index}, 0, x, ready});
    if (feeds_processor_) feed(index, x);
  }

  void features(Modality modality, std::span<const std::size_t>, ConstTensorView x,
                const Moment& ready) override {
    take({{OutputKind::kFeatures, static_cast<std::int64_t>(modality)}, 0, x, ready});
  }

  void embeddings(Modality modality, std::span<const std::size_t>, ConstTensorView x,
                  const Moment& ready) override {
    hold(ops_.stream());  // for the turn before, whose memory the next one takes
    std::int64_t& done = embedding_rows_[static_cast<std::size_t>(modality)];
    take({{OutputKind::kEmbeddings, static_cast<std::int64_t>(modality)}, done, x, ready});
    done += x.shape[0];
  }

  /// From now on hidden states go to this part's processor too, which has begun.
  void feed_processor() { feeds_processor_ = true; }

  /// What is put on `stream` from now on finds all results of before copied and sent.
  void hold(Stream stream) {
    ops_.wait_for(stream, ops_.copy_stream());
    if (cut_.delivery != nullptr) cut_.delivery->hold(stream);
  }

  /// Takes up what comes before `output`, none of which this rank computes.
  void receive_before(const OutputId& output) {
    while (next_ < hops_.size() && hops_[next_].transfer->output < output)
      receive(std::nullopt);
  }
  void receive_all() {
    while (next_ < hops_.size())
      receive(std::nullopt);
  }

 private:
  /// What others compute of the same output is looked out for once this rank has its own: they wait for each
  /// other least so.
  void take(const RowsInHand& rows) {
    const Stream copies = ops_.copy_stream();
    ops_.wait_for(copies, rows.ready);
    for (const Transfer& transfer : own_) {
      if (transfer.output == rows.output && cut_.routes->routes()[transfer.route].is_writer(cut_.rank))
        write(transfer, rows, copies);
    }
    while (next_ < hops_.size() && hops_[next_].transfer->output <= rows.output) {
      if (!hops_[next_].is_outgoing) {
        receive(rows.ready);
        continue;
      }
      const Transfer& transfer = *hops_[next_].transfer;
      const std::int64_t begin = std::max(transfer.first_row(), rows.first_row);
      const std::int64_t end = std::min(transfer.end_row(), rows.end_row());
      if (begin < end)
        cut_.delivery->send(transfer.route, rows.x, begin - rows.first_row, end - begin, rows.ready);
      if (rows.end_row() < transfer.end_row()) break;  // the rest comes in another turn
      ++next_;
    }
  }

  void receive(const std::optional<Moment>& gate) {
    const Transfer& transfer = *hops_[next_++].transfer;
    cut_.delivery->receive(transfer.route, transfer.width, transfer.first_row(),
                           transfer.end_row() - transfer.first_row(), transfer.pieces, gate);
  }

  void write(const Transfer& transfer, const RowsInHand& rows, Stream copies) {
    const DType dtype = rows.x.dtype;
    const auto row_bytes = transfer.width * static_cast<std::int64_t>(size_bytes(dtype));
    for (const DeliveredRows& piece : transfer.pieces) {
      if (piece.first_row < rows.first_row || piece.first_row >= rows.end_row()) continue;
      const Shape shape{piece.num_rows, transfer.width};
      const std::byte* const from = rows.x.as<std::byte>() + (piece.first_row - rows.first_row) * row_bytes;
      ops_.copy_to_host({piece.destination, dtype, shape}, {from, dtype, shape}, copies);
    }
  }

  void feed(std::int64_t index, const ConstTensorView& x) {
    const PartInHand& part = *cut_.part;
    part.processor->add_state(index, x);
    // Before the residual stream, which follows the last state.
    if (index == part.encoder->weights().layer_range.end) hand_sums_on(part, ops_);
  }

  const CutInHand& cut_;
  Ops& ops_;
  const std::vector<Transfer>& own_;
  const std::vector<Hop> hops_;
  std::size_t next_ = 0;
  bool feeds_processor_ = false;
  std::array<std::int64_t, 2> embedding_rows_{};
};

/// What this rank receives of the run number `number` of all replicas.
std::vector<Transfer> incoming_of(const CutInHand& cut, const std::vector<std::vector<Run>>& runs,
                                  std::size_t number) {
  std::vector<Transfer> incoming;
  if (cut.delivery == nullptr) return incoming;
  for (const std::vector<Run>& of_replica : runs) {
    if (number >= of_replica.size()) continue;
    std::vector<Transfer> of_run =
        transfers_of(of_replica[number], [&](std::size_t route) { return cut.delivery->receives(route); });
    std::move(of_run.begin(), of_run.end(), std::back_inserter(incoming));
  }
  return incoming;
}

/// A stage goes on from the sums of the one before.
void begin_processing(const PartInHand& part, const std::vector<std::int64_t>& offsets,
                      const std::vector<ProcessorUnit>& units, Ops& ops) {
  const Range layers = part.encoder->weights().layer_range;
  const bool continues = layers.begin > 0;
  part.processor->begin(offsets, units, continues);
  if (!continues) return;
  for (const TensorView& sums : part.processor->sums())
    part.links->receive(sums, ops.stream());
  if (layers.empty()) hand_sums_on(part, ops);  // no state will come to do so
}

std::int64_t forward(const Run& run, const CutInHand& cut, RunSink& sink, Ops& ops) {
  const PartInHand& part = *cut.part;
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> offsets{0};
  for (const PromptInHand& prompt : run) {
    ids.insert(ids.end(), prompt.ids().begin(), prompt.ids().end());
    offsets.push_back(static_cast<std::int64_t>(ids.size()));
  }
  std::vector<ProcessorUnit> units;
  if (part.processor != nullptr) units = units_of(run, part.processor_rank);
  const bool processes = !units.empty();
  if (processes) {
    begin_processing(part, offsets, units, ops);
    sink.feed_processor();
  }
  part.encoder->forward({ids, offsets}, *part.links, sink);
  if (processes && part.processor_rank == cut.rank) part.processor->finish(sink);
  return offsets.back();
}

}  // namespace

std::int64_t compute_cut(std::span<const JobInHand> jobs, const CutInHand& cut, Ops& ops) {
  std::vector<std::vector<Run>> runs;
  std::size_t most_runs = 0;
  for (std::size_t replica = 0; replica < cut.replicas.size(); ++replica) {
    runs.push_back(runs_of(jobs, cut, static_cast<int>(replica), ops));
    most_runs = std::max(most_runs, runs.back().size());
  }
  std::int64_t num_tokens = 0;
  for (std::size_t number = 0; number < most_runs; ++number) {
    const std::vector<Transfer> incoming = incoming_of(cut, runs, number);
    const std::vector<Run>* const own =
        cut.part != nullptr ? &runs[static_cast<std::size_t>(cut.part->replica)] : nullptr;
    const bool computes = own != nullptr && number < own->size();
    std::vector<Transfer> outgoing;
    if (computes) outgoing = transfers_of((*own)[number], [](std::size_t) { return true; });
    RunSink sink(cut, ops, outgoing, incoming);
    if (computes) {
      sink.hold(ops.stream());
      // States of the layers before this part's, which those wait to get rid of.
      sink.receive_before({OutputKind::kHiddenState, cut.part->encoder->first_state()});
      num_tokens += forward((*own)[number], cut, sink, ops);
    }
    sink.receive_all();
  }
  if (cut.part != nullptr) cut.part->links->wait(ops.stream());
  ops.synchronize(ops.stream());
  ops.synchronize(ops.copy_stream());
  if (cut.delivery != nullptr) cut.delivery->wait();
  return num_tokens;
}

}  // namespace gemmad
