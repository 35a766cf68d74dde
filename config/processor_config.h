// What the embeddings processor of an LTX-2 checkpoint is, read from the checkpoint's metadata: what makes a
// diffusion transformer's embeddings of Gemma's hidden states.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "config/config_error.h"
#include "config/model_config.h"

namespace gemmad {

enum class Modality : std::uint8_t { kVideo, kAudio };
inline constexpr std::array kModalities = {Modality::kVideo, Modality::kAudio};

/// kV1 (LTX-2, 19B): each hidden state of a prompt is normalised by its range, and one projection without
/// bias serves both modalities. kV2 (LTX-2.3 and 2.5, 22B): each token by its root mean square, and each
/// modality has a projection with bias.
enum class ProcessorVariant : std::uint8_t { kV1, kV2 };

/// Which elements rotary positions turn together: i with i + head_dim / 2 of a head, or neighbours.
enum class RopeLayout : std::uint8_t { kSplit, kInterleaved };

/// A connector: a bidirectional transformer over a prompt's features, filled up with registers.
struct ConnectorConfig {
  std::int64_t num_heads = 0;   // H
  std::int64_t head_dim = 0;    // even
  std::int64_t num_layers = 0;  // at least one

  /// C, of its features, its activations and its embeddings.
  std::int64_t width() const { return num_heads * head_dim; }
  bool operator==(const ConnectorConfig&) const = default;
};

/// Sizes are positive and bounded: C is between 4 and 65536.
struct ProcessorConfig {
  ProcessorVariant variant = ProcessorVariant::kV1;
  ConnectorConfig video;
  ConnectorConfig audio;
  bool has_gates = false;    // a factor for each row and head of attention's result
  bool has_ffn_bias = true;  // the feed-forward's two
  RopeLayout rope_layout = RopeLayout::kSplit;
  bool has_double_grid = false;  // frequencies computed in fp64, then rounded
  std::int64_t max_pos = 1;      // of rotary positions: p counts as p / max_pos

  const ConnectorConfig& connector(Modality modality) const {
    return modality == Modality::kVideo ? video : audio;
  }
  std::size_t num_projections() const { return variant == ProcessorVariant::kV1 ? 1 : 2; }
  /// The projection, below num_projections(), that makes a modality's features.
  std::size_t projection_of(Modality modality) const {
    return variant == ProcessorVariant::kV1 ? 0 : static_cast<std::size_t>(modality);
  }
  /// C of a projection's features.
  std::int64_t projection_width(std::size_t projection) const {
    return projection == 0 ? video.width() : audio.width();
  }

  bool operator==(const ProcessorConfig&) const = default;
};

/// The hidden states that a processor is made for.
struct StateSizes {
  std::int64_t hidden_size = 0;  // D
  std::int64_t num_states = 0;   // layers + 1

  bool operator==(const StateSizes&) const = default;
};

StateSizes state_sizes(const TextConfig& config);

/// What a checkpoint says about the Gemma that it was trained with.
struct GemmaPairing {
  std::optional<std::string> model_version;  // of the checkpoint: "2.3.0"
  std::optional<std::string> gemma_version;  // "gemma4-12b-ltx-v1"

  bool operator==(const GemmaPairing&) const = default;
};

struct ProcessorMetadata {
  ProcessorConfig config;
  GemmaPairing pairing;
};

/// The `__metadata__` of a safetensors file.
using FileMetadata = std::map<std::string, std::string, std::less<>>;

/// Reads `config` (a JSON object with `transformer`, at most kMaxConfigBytes), `model_version` and
/// `gemma_source_checkpoint`. Absent keys of `transformer` take LTX-2's defaults, unknown ones are ignored.
/// Throws ConfigError for a processor that this program would compute wrongly, by key: no config, some but
/// not all of the four keys that tell V2, or with other values; an unknown `rope_type`; positions of other
/// than one axis; V2 widths of the transformer that are not those of the connectors.
ProcessorMetadata parse_processor_metadata(const FileMetadata& metadata, const std::string& source_name);

/// Throws ConfigError when a processor cannot be fed by hidden states of these sizes: V1's features are as
/// wide as they are.
void check_fits(const ProcessorConfig& config, const StateSizes& states, const std::string& source_name);

/// A published processor, for random weights. kLtx2: of the 19B model; kLtx2_3: of the 22B ones, 2.3 and 2.5.
enum class ProcessorPreset : std::uint8_t { kNone, kLtx2, kLtx2_3 };

/// Not of kNone: std::invalid_argument.
ProcessorConfig processor_preset(ProcessorPreset preset);

}  // namespace gemmad
