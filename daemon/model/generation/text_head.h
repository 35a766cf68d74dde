// The tied head: from the rows behind the final norm to their logits on the host.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/model/part_links.h"
#include "daemon/model/text_weights.h"
#include "kernels/ops.h"

namespace gemmad {

/// Of one part of the model. The table is used where it is anyhow: slices share its rows, and of stages the
/// first one has it, to which the last one hands its rows back. Logits come to the first part.
class TextHead {
 public:
  /// Where this part stands among those of its replica that have layers: slices, or stages one behind the
  /// other.
  struct Place {
    PartLinks::Slices slices;
    int stage = 0;
    int num_stages = 1;
  };

  /// For up to `max_rows` rows. Keeps a reference to `ops`. Throws std::bad_alloc.
  TextHead(const TextConfig& config, const TextWeights& weights, const Place& place, std::int64_t max_rows,
           Ops& ops);

  /// The logits of the first `num_rows` of `rows`, which the last layer's part has (others give what they
  /// like): as many, filled up as the device likes it. Every part calls it alike, with the same number.
  /// Blocks until they are on the host. Throws what links throw.
  void run(ConstTensorView rows, std::int64_t num_rows, PartLinks& links);

  /// Finds the fastest product (Ops::tune_gemm). Blocks. Uses no links.
  void tune();

  /// True for the part that gets the logits.
  bool has_logits() const { return place_.slices.own == 0 && place_.stage == 0; }
  /// Those of one row, [V] of the compute type, on the host. Valid until the next run.
  ConstTensorView logits(std::int64_t row) const;

  /// Of device memory.
  std::uint64_t size_bytes() const { return rows_.size_bytes() + own_.size_bytes() + all_.size_bytes(); }

 private:
  ConstTensorView own_table() const;
  std::int64_t slice_begin(int slice) const;
  std::int64_t slice_rows() const;
  void assemble(std::int64_t num_rows);

  std::int64_t vocab_size_;
  std::int64_t hidden_size_;
  std::shared_ptr<const Ops::Table> table_;
  Place place_;
  Ops& ops_;
  std::int64_t max_rows_;             // filled up
  Buffer rows_;                       // [max rows, D], handed back by the last stage; empty elsewhere
  Buffer own_;                        // [max rows, V/slices]
  Buffer all_;                        // [slices, max rows, V/slices]; empty where there is but one
  std::vector<std::byte> host_;       // what comes from the device
  std::shared_ptr<void> pinned_;      // host_
  std::vector<std::byte> assembled_;  // rows of all slices; empty where there is but one
};

}  // namespace gemmad
