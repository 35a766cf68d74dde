// The sizes of a text model that is small, for plans and layouts: no weights of it exist.
#pragma once

#include <cstdint>

#include "config/model_config.h"

namespace gemmad {

inline TextConfig small_text_config(std::int64_t num_layers = 8) {
  TextConfig model{};
  model.hidden_size = 96;
  model.head_dim = 16;
  model.num_heads = 4;
  model.num_kv_heads = 2;
  model.intermediate_size = 192;
  model.num_layers = num_layers;
  return model;
}

}  // namespace gemmad
