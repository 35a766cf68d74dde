// The Gemma 3 text model as it continues sequences: rows in, which see what the cache holds of theirs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "daemon/model/generation/kv_cache.h"
#include "daemon/model/part_links.h"
#include "daemon/model/text_layers.h"
#include "daemon/model/text_workspace.h"
#include "kernels/ops.h"

namespace gemmad {

/// A token of a sequence.
struct CachedRow {
  std::int32_t id = 0;
  std::int32_t slot = 0;      // of its sequence in the cache
  std::int32_t position = 0;  // in its sequence; all before it are in the cache or in the same pass
  std::int32_t end = 0;       // the first position that it does not see: position + 1, or an image's end
};

/// What stands in place of embeddings in some rows of a pass. Does not own.
struct ImageRows {
  std::int64_t first_row = 0;
  ConstTensorView features;  // [T, D] of the compute type; without the embeddings' scale
};

/// One part of the model. Shares its weights with their other holders, and the workspace with the encoder:
/// one pass of either at a time.
class TextDecoder {
 public:
  /// `workspace` is at least as wide as the weights; `cache` was made for their layers and heads. Keeps
  /// references to both and to `ops`.
  TextDecoder(const TextConfig& config, TextWeights weights, TextWorkspace& workspace, KvCache& cache,
              Ops& ops);

  /// Puts a pass over one token of each of some sequences on ops.stream(): B rows, of different slots. The
  /// caller has checked ids and positions. Returns [B, D], the rows behind the final norm, where the last
  /// layer is here; valid until the next pass. Throws what links throw.
  ConstTensorView decode(std::span<const CachedRow> rows, PartLinks& links);
  /// The same for a run of tokens of one sequence, at most as many as the cache's max_chunk_rows and as the
  /// workspace has room for. Of it there is nothing but what the cache then holds.
  void prefill(std::span<const CachedRow> rows, const std::optional<ImageRows>& image, PartLinks& links);

  const TextWeights& weights() const { return layers_.weights(); }
  /// Of device memory; the cache and the workspace have their own.
  std::uint64_t size_bytes() const { return inputs_.size_bytes(); }

 private:
  Activations stage(std::span<const CachedRow> rows);
  void run_layers(const Activations& a, bool is_chunk, PartLinks& links);

  TextLayers layers_;
  TextWorkspace& workspace_;
  KvCache& cache_;
  Ops& ops_;
  std::int64_t max_rows_;
  std::vector<std::int32_t> host_inputs_;   // [4, max rows]: ids, slots, positions, ends
  Buffer inputs_;                           // the same on the device
  CacheRows rows_;                          // of the pass at hand
  std::unique_ptr<Recordings> recordings_;  // of decode, by rows
};

}  // namespace gemmad
