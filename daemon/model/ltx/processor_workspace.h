// The memory that an embeddings processor works in: allocated once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "config/processor_config.h"
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
  std::array<TensorView, 2> sums;  // [max rows, C] F32, of each projection
  TensorView normed;               // [max rows, D]
  TensorView scratch;              // [max tokens + 1, Ops::kRangeScratch] F32; V1 only
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

/// Owns the memory, and the tables of positions. Used by one processor at a time.
class ProcessorWorkspace {
 public:
  /// Keeps ops.memory(). `has_connectors`: as the share's. Throws std::bad_alloc, and std::invalid_argument
  /// for limits that are not positive or a sequence that is no multiple of kNumRegisters.
  ProcessorWorkspace(const ProcessorConfig& config, const StateSizes& states, bool has_connectors, Ops& ops,
                     const ProcessorLimits& limits);

  const ProcessorLimits& limits() const { return limits_; }
  bool has_connectors() const { return has_connectors_; }
  /// Rows of a pass, and what the device fills them up with.
  std::int64_t max_rows() const { return max_rows_; }

  ProjectionPlaces projection_places() const;
  ConnectorPlaces connector_places(Modality modality, std::int64_t num_units) const;
  /// [num_rows, C] for a modality's features.
  TensorView features(Modality modality, std::int64_t num_rows) const;
  /// [U S, C] for a connector's result, in one of two places.
  TensorView embeddings(Modality modality, std::int64_t num_units, std::size_t place) const;
  /// [S, C], for Ops::norm_rope_across.
  ConstTensorView rope(Modality modality) const;
  /// Of `num_units` sequences that see themselves wholly.
  AttentionSpans spans(std::int64_t num_units) const;
  /// [num_numbers] I32, for a pass's lists of rows and bounds.
  TensorView lists(std::int64_t num_numbers) const;
  /// Room for them on the host.
  std::span<std::int32_t> host_lists() { return host_lists_; }

  std::uint64_t size_bytes() const;
  /// What size_bytes() will be, before there is one.
  static std::uint64_t size_bytes(const ProcessorConfig& config, const StateSizes& states,
                                  bool has_connectors, const Ops& ops, const ProcessorLimits& limits);

 private:
  ProcessorConfig config_;
  StateSizes states_;
  bool has_connectors_;
  ProcessorLimits limits_;
  DType dtype_;
  std::int64_t max_rows_;
  Buffer memory_;
  std::vector<std::int32_t> host_lists_;
};

}  // namespace gemmad
