#include "daemon/batch_forward.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <tuple>
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

/// What is wanted of one hidden state of a run by one route.
struct Transfer {
  std::int64_t state = 0;
  std::size_t route = 0;
  std::vector<DeliveredRows> pieces;  // by rising rows

  std::int64_t first_row() const { return pieces.front().first_row; }
  std::int64_t num_rows() const { return pieces.back().first_row + pieces.back().num_rows - first_row(); }
};

/// The passes of one replica.
std::vector<Run> runs_of(std::span<const JobInHand> jobs, const CutInHand& cut, int replica, const Ops& ops) {
  std::vector<PromptInHand> prompts;
  std::vector<std::int64_t> tokens;
  for (const JobInHand& job : jobs) {
    if (job.plan->cut != cut.cut) continue;
    for (std::size_t i = 0; i < job.plan->replicas.size(); ++i) {
      if (job.plan->replicas[i] != replica || !job.job->prompts[i].ok()) continue;
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

/// What is to be delivered of a run over the routes that are `wanted`, by rising states. The same on every
/// rank, but for the destinations. Devices wait for it: a list of all pieces, sorted, takes the least time.
template <typename Wanted>
std::vector<Transfer> transfers_of(const Run& run, const Wanted& wanted) {
  struct Piece {
    std::int64_t state;
    std::size_t route;
    DeliveredRows rows;
  };
  std::vector<Piece> pieces;
  std::int64_t first_row = 0;
  for (const PromptInHand& prompt : run) {
    const auto num_rows = static_cast<std::int64_t>(prompt.ids().size());
    const std::vector<PlacedTensor>& tensors = prompt.job->layout->prompts[prompt.index];
    pieces.reserve(pieces.size() + tensors.size());
    for (const PlacedTensor& tensor : tensors) {
      if (!wanted(tensor.route)) continue;
      pieces.push_back({tensor.hidden_state,
                        tensor.route,
                        {first_row, num_rows, prompt.job->block.data() + tensor.offset}});
    }
    first_row += num_rows;
  }
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.state, a.route) < std::tie(b.state, b.route);
  });
  std::vector<Transfer> transfers;
  for (const Piece& piece : pieces) {
    const bool is_new =
        transfers.empty() || transfers.back().state != piece.state || transfers.back().route != piece.route;
    if (is_new) transfers.push_back({piece.state, piece.route, {}});
    transfers.back().pieces.push_back(piece.rows);
  }
  return transfers;
}

/// A transfer that this rank takes part in, as its source or as a receiver.
struct Hop {
  const Transfer* transfer = nullptr;
  bool is_outgoing = false;
};

/// All that travels from and to this rank while a run is computed, by rising states and routes. Every rank
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
    return std::tie(a.transfer->state, a.transfer->route) < std::tie(b.transfer->state, b.transfer->route);
  });
  return hops;
}

/// Writes the hidden states of a pass to their places, and hands them on, as they come.
class RunSink final : public HiddenStateSink {
 public:
  /// `own`: of the run that is computed; `incoming`: what others compute meanwhile.
  RunSink(const CutInHand& cut, Ops& ops, const std::vector<Transfer>& own,
          const std::vector<Transfer>& incoming)
      : cut_(cut), ops_(ops), own_(own), hops_(hops_of(cut, own, incoming)) {}

  /// Copies go beside the computation of the next state. The stream waits for those of the state before,
  /// whose memory the next but one takes.
  void hidden_state(std::int64_t index, ConstTensorView x, const Moment& ready, bool is_kept) override {
    const Stream copies = ops_.copy_stream();
    if (!is_kept) hold(ops_.stream());
    ops_.wait_for(copies, ready);
    for (const Transfer& transfer : own_) {
      if (transfer.state == index && cut_.routes->routes()[transfer.route].is_writer(cut_.rank))
        write(transfer, x, copies);
    }
    take_hops(index, x, ready);
  }

  /// What is put on `stream` from now on finds all states of before copied and sent.
  void hold(Stream stream) {
    ops_.wait_for(stream, ops_.copy_stream());
    if (cut_.delivery != nullptr) cut_.delivery->hold(stream);
  }

  /// Takes up what comes of states up to `index`, none of which this rank computes.
  void receive_until(std::int64_t index) { take_hops(index, {}, std::nullopt); }

 private:
  /// `x`, there at `ready`, is state `index`, where this rank computes it. What others compute of it is
  /// looked out for from then on: ranks that work on the same state wait for each other least so.
  void take_hops(std::int64_t index, const ConstTensorView& x, const std::optional<Moment>& ready) {
    for (; next_ < hops_.size() && hops_[next_].transfer->state <= index; ++next_) {
      const Transfer& transfer = *hops_[next_].transfer;
      if (hops_[next_].is_outgoing) {
        cut_.delivery->send(transfer.route, x, transfer.first_row(), transfer.num_rows(), *ready);
      } else {
        cut_.delivery->receive(transfer.route, transfer.first_row(), transfer.num_rows(), transfer.pieces,
                               ready);
      }
    }
  }

  void write(const Transfer& transfer, const ConstTensorView& x, Stream copies) {
    const std::int64_t width = x.shape[1];
    const auto row_bytes = width * static_cast<std::int64_t>(size_bytes(x.dtype));
    for (const DeliveredRows& piece : transfer.pieces) {
      const Shape shape{piece.num_rows, width};
      ops_.copy_to_host({piece.destination, x.dtype, shape},
                        {x.as<std::byte>() + piece.first_row * row_bytes, x.dtype, shape}, copies);
    }
  }

  const CutInHand& cut_;
  Ops& ops_;
  const std::vector<Transfer>& own_;
  const std::vector<Hop> hops_;
  std::size_t next_ = 0;
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

std::int64_t forward(const Run& run, const CutInHand& cut, RunSink& sink) {
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> offsets{0};
  for (const PromptInHand& prompt : run) {
    ids.insert(ids.end(), prompt.ids().begin(), prompt.ids().end());
    offsets.push_back(static_cast<std::int64_t>(ids.size()));
  }
  cut.part->encoder->forward({ids, offsets}, *cut.part->links, sink);
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
      sink.receive_until(cut.part->encoder->first_state() - 1);
      num_tokens += forward((*own)[number], cut, sink);
    }
    sink.receive_until(std::numeric_limits<std::int64_t>::max());
  }
  if (cut.part != nullptr) cut.part->links->wait(ops.stream());
  ops.synchronize(ops.stream());
  ops.synchronize(ops.copy_stream());
  if (cut.delivery != nullptr) cut.delivery->wait();
  return num_tokens;
}

}  // namespace gemmad
