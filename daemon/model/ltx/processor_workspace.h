// The memory that an embeddings processor works in: allocated once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "config/processor_config.h"
#include "daemon/model/ltx/pass_plan.h"
#include "daemon/model/text_workspace.h"
#include "kernels/ops.h"

namespace gemmad {

/// How much a processor takes on at once.
struct ProcessorLimits {
  std::int64_t max_batch_tokens = 0;   // of a pass
  std::int64_t max_units_at_once = 0;  // sequences that go through a connector together; more take turns
  std::int64_t sequence_length = kPaddedLength;  // S: rows of embeddings, a multiple of kNumRegisters

  bool operator==(const ProcessorLimits&) const = default;
};

/// Places for the projections of a pass. They share theirs with ConnectorPlaces: a pass is done with the one
/// when it begins with the other.
struct ProjectionPlaces {
  std::array<TensorView, 2> sums;  // [rows, C] F32, of each projection
  TensorView normed;               // [rows, D]
  TensorView scratch;              // [sequences, Ops::kRangeScratch] F32; V1 only
};

/// Places for a connector's U sequences.
struct ConnectorPlaces {
  TensorView h;       // [U S, C], the residual stream
  TensorView normed;  // [U S, C]
  TensorView qkv;     // [U S, 3C]
  TensorView mixed;   // [U S, C]
  TensorView logits;  // [U S, H]
  TensorView fed;     // [U S, 4C]; where qkv and mixed are
};

/// All of a workspace's places, for the widest connector and the most rows. Those without data are not there.
struct ProcessorPlaces {
  TensorView lists;                      // [max_list_numbers()] I32
  TensorView begins;                     // [U S] I32, as Ops::attention takes them
  TensorView ends;                       // [U S] I32, likewise
  std::array<TensorView, 2> rope;        // [S, C], by modality
  std::array<TensorView, 2> features;    // [max_batch_tokens, C], by modality
  std::array<TensorView, 2> embeddings;  // [U S, C], taken in turns
  ProjectionPlaces projections;
  ConnectorPlaces connectors;
};

/// Owns the memory, and the tables of positions. Used by one processor at a time.
class ProcessorWorkspace {
 public:
  /// Keeps ops.memory(). `has_connectors`: as the share's. Throws std::bad_alloc, and std::invalid_argument
  /// for limits that are not positive or a sequence that is no multiple of kNumRegisters.
  ProcessorWorkspace(const ProcessorConfig& config, const StateSizes& states, bool has_connectors, Ops& ops,
                     const ProcessorLimits& limits);

  const ProcessorLimits& limits() const { return limits_; }
  bool has_connectors() const { return has_connectors_; }

  /// [num_rows, C] F32 for a projection's sums.
  TensorView sums(std::size_t projection, std::int64_t num_rows) const;
  /// [num_rows, D]
  TensorView normed_states(std::int64_t num_rows) const;
  /// [num_sequences, Ops::kRangeScratch] F32. V1 only.
  TensorView range_scratch(std::int64_t num_sequences) const;
  /// [num_rows, C] for a modality's features.
  TensorView features(Modality modality, std::int64_t num_rows) const;
  ConnectorPlaces connector_places(Modality modality, std::int64_t num_units) const;
  /// [U S, C] for a connector's result, in place 0 or 1.
  TensorView embeddings(Modality modality, std::int64_t num_units, std::size_t place) const;
  /// [S, C], for Ops::norm_rope_across.
  ConstTensorView rope(Modality modality) const;
  /// Of `num_units` sequences that see themselves wholly.
  AttentionSpans spans(std::int64_t num_units) const;
  /// Some of a pass's lists, I32.
  TensorView list(const ListRange& range) const;

  std::uint64_t size_bytes() const { return memory_.size_bytes(); }
  /// What size_bytes() will be, before there is one.
  static std::uint64_t size_bytes(const ProcessorConfig& config, const StateSizes& states,
                                  bool has_connectors, const Ops& ops, const ProcessorLimits& limits);

 private:
  std::int64_t connector_rows(std::int64_t num_units) const { return num_units * limits_.sequence_length; }

  ProcessorConfig config_;
  bool has_connectors_;
  ProcessorLimits limits_;
  Buffer memory_;
  ProcessorPlaces places_;
};

}  // namespace gemmad
