// LTX-2's embeddings processor: from the hidden states of prompts to the features and embeddings that its
// diffusion transformer takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "config/processor_config.h"
#include "daemon/model/ltx/pass_plan.h"
#include "daemon/model/ltx/processor_weights.h"
#include "daemon/model/ltx/processor_workspace.h"
#include "kernels/ops.h"

namespace gemmad {

/// Takes the results of a pass. `x` is of the compute type and is there at `ready`. Copies may be under way
/// elsewhere after a call has returned, if the sink makes the device's stream() wait for them before `x` is
/// overwritten. A sink that throws ends the pass; the processor stays usable.
class ProcessorSink {
 public:
  virtual ~ProcessorSink() = default;
  /// Called once for each modality of which a unit wants features, video first, before any embeddings.
  /// `units`: all units of the modality, indices into those of the pass, in their order, also those that want
  /// embeddings only. `x` [M, C]: the rows of their prompts, one prompt after another. Overwritten by the
  /// next finish().
  virtual void features(Modality modality, std::span<const std::size_t> units, ConstTensorView x,
                        const Moment& ready) = 0;
  /// Called for one turn after another until each unit that wants embeddings has come, in their order, video
  /// first. `units`: those of this turn, U of them. `x` [U S, C]: S rows of each. Overwritten by work put on
  /// stream() after the return of the next call, in this pass or a later one.
  virtual void embeddings(Modality modality, std::span<const std::size_t> units, ConstTensorView x,
                          const Moment& ready) = 0;
};

/// Shares its weights with their other holders. A pass is: begin(), in a later stage the earlier one's sums
/// into sums(), add_state() for each of the share's hidden states, then finish(), or sums() to the next
/// stage. All work is put on ops.stream(); nothing is allocated on the device and nothing blocks. One pass at
/// a time.
///
/// Only rows of prompts that a unit wants are computed, and of connectors only those of modalities and
/// prompts whose embeddings are wanted.
class EmbeddingsProcessor {
 public:
  /// `workspace` was made for `config`, `states` and a share with connectors where `weights` has them. Keeps
  /// references to it and to `ops`.
  EmbeddingsProcessor(const ProcessorConfig& config, const StateSizes& states, ProcessorWeights weights,
                      ProcessorWorkspace& workspace, Ops& ops);

  /// Begins a pass over prompts packed as in PackedPrompts, prompt b = rows [offsets[b], offsets[b+1]) of
  /// each hidden state, N = offsets[B]; of an earlier pass, nothing is left but results that were handed out.
  /// `continues`: this stage goes on from the sums of an earlier one, which lie in sums() before the first
  /// add_state(). Throws std::invalid_argument for offsets that do not rise from 0, more than
  /// max_batch_tokens tokens, a wanted prompt longer than S, and a unit that is of no prompt, wants nothing
  /// or comes twice.
  void begin(std::span<const std::int64_t> offsets, std::span<const ProcessorUnit> units, bool continues);

  /// Adds hidden state `index`, [N, D] of the compute type. It is read by work on ops.stream(). Each index of
  /// the share once, in any order: the same order gives the same bytes. Throws std::out_of_range for one that
  /// the share has not, OpError.
  void add_state(std::int64_t index, ConstTensorView x);

  /// [M, C] F32 of each projection: of the rows of the prompts that it serves, none where no unit needs it.
  /// Stages with the same offsets and units have the same M. Work that fills them must come behind, and work
  /// that reads them before, what the next begin(), finish() and add_state() put on ops.stream().
  std::vector<TensorView> sums() const;

  /// Hands out all results. Needs connectors, biases included. Throws what `sink` throws, and
  /// std::logic_error in a stage without them or without anything added.
  void finish(ProcessorSink& sink);

  const ProcessorConfig& config() const { return config_; }
  const ProcessorWeights& weights() const { return weights_; }
  const ProcessorLimits& limits() const { return workspace_.limits(); }

 private:
  void project(std::size_t projection, std::int64_t state, ConstTensorView x);
  /// The features of a modality, [M, C], once they are there.
  ConstTensorView features_of(Modality modality) const;
  void make_features();
  void run_connector(Modality modality, ProcessorSink& sink);
  void fill(Modality modality, std::span<const UnitRows> turn);
  void run_blocks(Modality modality, std::int64_t num_units);
  void attend(const ConnectorBlock& block, const ConnectorPlaces& places, Modality modality,
              std::int64_t num_units);

  ProcessorConfig config_;
  StateSizes states_;
  ProcessorWeights weights_;
  ProcessorWorkspace& workspace_;
  Ops& ops_;
  std::unique_ptr<Recordings> recordings_;  // by units at once; step: the modality
  PassPlan plan_;
  bool has_sums_ = false;       // of this stage or an earlier one
  std::size_t next_place_ = 0;  // of embeddings
};

}  // namespace gemmad
