#include "tests/daemon/model/ltx/processor_reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "kernels/base/float_formats.h"

namespace gemmad {
namespace {

constexpr double kEps = 1e-6;

/// A tensor of one or two extents; one alone is a row.
ReferenceMatrix load(const WeightSource& weights, const std::string& name) {
  const ConstTensorView view = weights.tensor(name).view;
  const std::int64_t rows = view.shape.rank() == 1 ? 1 : view.shape[0];
  ReferenceMatrix matrix{rows, view.shape.num_elements() / rows, {}};
  for (std::int64_t i = 0; i < view.shape.num_elements(); ++i) {
    matrix.values.push_back(view.dtype == DType::kBF16 ? bf16_to_f32(load_u16(view.as<std::byte>(), i))
                                                       : load_f32(view.as<std::byte>(), i));
  }
  return matrix;
}

std::string prefix_of(Modality modality) {
  return modality == Modality::kVideo ? "model.diffusion_model.video_embeddings_connector."
                                      : "model.diffusion_model.audio_embeddings_connector.";
}

/// x W^T + b, where there is a b.
ReferenceMatrix linear(const WeightSource& weights, const std::string& name, bool has_bias,
                       const ReferenceMatrix& x) {
  const ReferenceMatrix w = load(weights, name + ".weight");
  const ReferenceMatrix b = has_bias ? load(weights, name + ".bias") : ReferenceMatrix{1, w.rows, {}};
  ReferenceMatrix y{x.rows, w.rows, std::vector<double>(static_cast<std::size_t>(x.rows * w.rows))};
  for (std::int64_t n = 0; n < x.rows; ++n) {
    for (std::int64_t o = 0; o < w.rows; ++o) {
      double sum = has_bias ? b.at(0, o) : 0;
      for (std::int64_t i = 0; i < x.columns; ++i)
        sum += x.at(n, i) * w.at(o, i);
      y.at(n, o) = sum;
    }
  }
  return y;
}

ReferenceMatrix rms_norm(ReferenceMatrix x) {
  for (std::int64_t n = 0; n < x.rows; ++n) {
    double squares = 0;
    for (std::int64_t i = 0; i < x.columns; ++i)
      squares += x.at(n, i) * x.at(n, i);
    const double factor = 1 / std::sqrt(squares / static_cast<double>(x.columns) + kEps);
    for (std::int64_t i = 0; i < x.columns; ++i)
      x.at(n, i) *= factor;
  }
  return x;
}

void scale_columns(ReferenceMatrix& x, const ReferenceMatrix& by) {
  for (std::int64_t n = 0; n < x.rows; ++n) {
    for (std::int64_t i = 0; i < x.columns; ++i)
      x.at(n, i) *= by.at(0, i);
  }
}

void add(ReferenceMatrix& x, const ReferenceMatrix& y) {
  for (std::size_t i = 0; i < x.values.size(); ++i)
    x.values[i] += y.values[i];
}

/// The grid is of fp32 in either way to compute it; so are the angle's product and the rest of positions.
float frequency(const ProcessorConfig& config, std::int64_t i, std::int64_t count) {
  if (config.has_double_grid) {
    const double exponent = static_cast<double>(i) / static_cast<double>(count - 1);
    return static_cast<float>(std::pow(10000.0, exponent) * std::numbers::pi / 2);
  }
  const auto step = static_cast<float>(1.0 / static_cast<double>(count - 1));
  // Exact in fp64, so that the conversion is the only rounding.
  const auto exponent =
      i < count / 2 ? static_cast<float>(static_cast<double>(step) * static_cast<double>(i))
                    : static_cast<float>(1 - static_cast<double>(step) * static_cast<double>(count - 1 - i));
  const auto power = static_cast<float>(std::pow(10000.0, static_cast<double>(exponent)));
  const auto product = static_cast<float>(static_cast<double>(power) * 3.1415927410125732);
  return product / 2;
}

/// Turns (a, b) of row p by the angle of frequency `i`.
void turn(const ProcessorConfig& config, std::int64_t p, std::int64_t i, std::int64_t count, double& a,
          double& b) {
  const float time = 2 * (static_cast<float>(p) / static_cast<float>(config.max_pos)) - 1;
  const float angle = frequency(config, i, count) * time;
  const double cosine = std::cos(static_cast<double>(angle));
  const double sine = std::sin(static_cast<double>(angle));
  const double turned = a * cosine - b * sine;
  b = b * cosine + a * sine;
  a = turned;
}

void apply_rope(const ProcessorConfig& config, const ConnectorConfig& connector, ReferenceMatrix& x) {
  const std::int64_t count = x.columns / 2;
  const std::int64_t half = connector.head_dim / 2;
  for (std::int64_t p = 0; p < x.rows; ++p) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t in_head = i / half * connector.head_dim + i % half;
      if (config.rope_layout == RopeLayout::kSplit) {
        turn(config, p, i, count, x.at(p, in_head), x.at(p, in_head + half));
      } else {
        turn(config, p, i, count, x.at(p, 2 * i), x.at(p, 2 * i + 1));
      }
    }
  }
}

ReferenceMatrix attend(const ConnectorConfig& connector, const ReferenceMatrix& q, const ReferenceMatrix& k,
                       const ReferenceMatrix& v) {
  ReferenceMatrix out{q.rows, q.columns, std::vector<double>(q.values.size())};
  std::vector<double> scores(static_cast<std::size_t>(q.rows));
  for (std::int64_t head = 0; head < connector.num_heads; ++head) {
    const std::int64_t begin = head * connector.head_dim;
    const std::int64_t end = begin + connector.head_dim;
    for (std::int64_t n = 0; n < q.rows; ++n) {
      for (std::int64_t m = 0; m < q.rows; ++m) {
        double score = 0;
        for (std::int64_t i = begin; i < end; ++i)
          score += q.at(n, i) * k.at(m, i);
        scores[static_cast<std::size_t>(m)] = score / std::sqrt(static_cast<double>(connector.head_dim));
      }
      const double largest = *std::max_element(scores.begin(), scores.end());
      double total = 0;
      for (double& score : scores)
        total += score = std::exp(score - largest);
      for (std::int64_t m = 0; m < q.rows; ++m) {
        for (std::int64_t i = begin; i < end; ++i)
          out.at(n, i) += scores[static_cast<std::size_t>(m)] / total * v.at(m, i);
      }
    }
  }
  return out;
}

ReferenceMatrix attention(const WeightSource& weights, const ProcessorConfig& config,
                          const ConnectorConfig& connector, const std::string& prefix,
                          const ReferenceMatrix& x) {
  ReferenceMatrix q = rms_norm(linear(weights, prefix + "to_q", true, x));
  ReferenceMatrix k = rms_norm(linear(weights, prefix + "to_k", true, x));
  scale_columns(q, load(weights, prefix + "q_norm.weight"));
  scale_columns(k, load(weights, prefix + "k_norm.weight"));
  apply_rope(config, connector, q);
  apply_rope(config, connector, k);
  ReferenceMatrix out = attend(connector, q, k, linear(weights, prefix + "to_v", true, x));
  if (config.has_gates) {
    const ReferenceMatrix logits = linear(weights, prefix + "to_gate_logits", true, x);
    for (std::int64_t n = 0; n < out.rows; ++n) {
      for (std::int64_t i = 0; i < out.columns; ++i)
        out.at(n, i) *= 2 / (1 + std::exp(-logits.at(n, i / connector.head_dim)));
    }
  }
  return linear(weights, prefix + "to_out.0", true, out);
}

ReferenceMatrix feed_forward(const WeightSource& weights, bool has_bias, const std::string& prefix,
                             const ReferenceMatrix& x) {
  ReferenceMatrix fed = linear(weights, prefix + "net.0.proj", has_bias, x);
  for (double& g : fed.values)
    g = 0.5 * g * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g)));
  return linear(weights, prefix + "net.2", has_bias, fed);
}

/// The states of a prompt, each channel's next to one another: column d L + l.
ReferenceMatrix flatten(const PackedStates& states, std::size_t prompt) {
  const auto [hidden_size, num_states] = states.sizes();
  ReferenceMatrix flat{states.num_rows(prompt), hidden_size * num_states, {}};
  flat.values.resize(static_cast<std::size_t>(flat.rows * flat.columns));
  for (std::int64_t l = 0; l < num_states; ++l) {
    const float* const state = states.state(l, prompt).as<float>();
    for (std::int64_t i = 0; i < flat.rows * hidden_size; ++i)
      flat.at(i / hidden_size, i % hidden_size * num_states + l) = state[i];
  }
  return flat;
}

void normalise_by_range(ReferenceMatrix& flat, const StateSizes& sizes) {
  const auto count = static_cast<float>(flat.rows * sizes.hidden_size);  // fp32 in every run
  for (std::int64_t l = 0; l < sizes.num_states; ++l) {
    double sum = 0;
    double least = flat.at(0, l);
    double most = least;
    for (std::int64_t t = 0; t < flat.rows; ++t) {
      for (std::int64_t f = l; f < flat.columns; f += sizes.num_states) {
        sum += flat.at(t, f);
        least = std::min(least, flat.at(t, f));
        most = std::max(most, flat.at(t, f));
      }
    }
    for (std::int64_t t = 0; t < flat.rows; ++t) {
      for (std::int64_t f = l; f < flat.columns; f += sizes.num_states)
        flat.at(t, f) = 8 * (flat.at(t, f) - sum / static_cast<double>(count)) / (most - least + kEps);
    }
  }
}

void normalise_by_token(ReferenceMatrix& flat, const StateSizes& sizes, std::int64_t width) {
  const double rescale = std::sqrt(static_cast<double>(width) / static_cast<double>(sizes.hidden_size));
  for (std::int64_t t = 0; t < flat.rows; ++t) {
    for (std::int64_t l = 0; l < sizes.num_states; ++l) {
      double squares = 0;
      for (std::int64_t f = l; f < flat.columns; f += sizes.num_states)
        squares += flat.at(t, f) * flat.at(t, f);
      const double root = std::sqrt(squares / static_cast<double>(sizes.hidden_size) + kEps);
      for (std::int64_t f = l; f < flat.columns; f += sizes.num_states)
        flat.at(t, f) *= rescale / root;
    }
  }
}

}  // namespace

ReferenceMatrix reference_features(const WeightSource& weights, const ProcessorConfig& config,
                                   const PackedStates& states, std::size_t prompt, Modality modality) {
  ReferenceMatrix flat = flatten(states, prompt);
  if (config.variant == ProcessorVariant::kV1) {
    normalise_by_range(flat, states.sizes());
    return linear(weights, "text_embedding_projection.aggregate_embed", false, flat);
  }
  normalise_by_token(flat, states.sizes(), config.connector(modality).width());
  const std::string name = modality == Modality::kVideo ? "video_aggregate_embed" : "audio_aggregate_embed";
  return linear(weights, "text_embedding_projection." + name, true, flat);
}

ReferenceMatrix reference_embeddings(const WeightSource& weights, const ProcessorConfig& config,
                                     const ReferenceMatrix& features, Modality modality,
                                     std::int64_t sequence_length) {
  const ConnectorConfig& connector = config.connector(modality);
  const ReferenceMatrix registers = load(weights, prefix_of(modality) + "learnable_registers");
  ReferenceMatrix h{sequence_length, connector.width(), features.values};
  for (std::int64_t p = features.rows; p < sequence_length; ++p) {
    for (std::int64_t i = 0; i < h.columns; ++i)
      h.values.push_back(registers.at(p % 128, i));
  }
  for (std::int64_t block = 0; block < connector.num_layers; ++block) {
    const std::string prefix = prefix_of(modality) + "transformer_1d_blocks." + std::to_string(block) + ".";
    add(h, attention(weights, config, connector, prefix + "attn1.", rms_norm(h)));
    add(h, feed_forward(weights, config.has_ffn_bias, prefix + "ff.", rms_norm(h)));
  }
  return rms_norm(h);
}

std::vector<float> rounded(const ReferenceMatrix& matrix) {
  return {matrix.values.begin(), matrix.values.end()};
}

}  // namespace gemmad
