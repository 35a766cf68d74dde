// Which tensors a Gemma 3 text model has, and under what names files keep them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"
#include "kernels/base/tensor.h"

namespace gemmad {

enum class TensorRole {
  kText,     // of the text model; `name` is canonical
  kHead,     // the output head, tied to the embedding table; not used
  kVision,   // of the vision tower or its projector; not used
  kUnknown,  // none of these; `name` is as in the file
};

struct TensorIdentity {
  TensorRole role;
  std::string_view name;  // a part of the argument
};

/// Tells what a tensor is from its name in a file. Three layouts of names are known: "language_model.model.X"
/// (as published), "model.language_model.X" (saved again), "model.X" (text only); X is the canonical name.
TensorIdentity identify_tensor(std::string_view file_name);

struct ExpectedTensor {
  std::string name;  // canonical: "embed_tokens.weight", "layers.0.self_attn.q_proj.weight", "norm.weight"
  Shape shape;
};

/// The table of all text tensors of a model, in the order in which they are loaded: embeddings, layers, final
/// norm.
std::vector<ExpectedTensor> expected_tensors(const TextConfig& config);

}  // namespace gemmad
