// How long a forward pass takes on the CPU, against its projection GEMMs alone, run on the same shapes in the
// same program.
//
// forward_bench [--model DIR] [--threads LIST] [--tokens LIST] [--rounds N]
//   --model    a Hugging Face directory; without it: random weights of the sizes of Gemma 3 270M
//   --threads  "1,2"
//   --tokens   batches, each a sum of prompt lengths: "128,1024,8+20+77+140+300"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "daemon/model/model_files.h"
#include "daemon/model/text_encoder.h"
#include "kernels/cpu/cpu_ops.h"
#include "tests/bench/flags.h"
#include "tests/bench/prompt_lengths.h"
#include "tests/support/random_source.h"

namespace gemmad {
namespace {

constexpr std::int64_t kVocabularyUsed =
    200;  // ids of the prompts: small, so that random weights need no big table

struct Options {
  std::string model;
  std::vector<std::int64_t> threads = {1, 2};
  std::vector<std::vector<std::int64_t>> batches = {{128}, {1024}, {8, 20, 77, 140, 300}};
  int rounds = 7;
};

Options parse_options(int argc, char** argv) {
  Options options;
  for_each_flag(argc, argv, [&](const std::string& flag, const std::string& value) {
    if (flag == "--model") {
      options.model = value;
    } else if (flag == "--threads") {
      options.threads = parse_numbers(value, ',');
    } else if (flag == "--rounds") {
      options.rounds = std::stoi(value);
    } else if (flag == "--tokens") {
      options.batches = parse_batches(value);
    } else {
      throw std::invalid_argument("unknown option " + flag);
    }
  });
  return options;
}

TextConfig config_270m() {
  TextConfig config{};
  config.model_type = "gemma3_text";
  config.vocab_size = kVocabularyUsed;
  config.hidden_size = 640;
  config.intermediate_size = 2048;
  config.num_layers = 18;
  config.num_heads = 4;
  config.num_kv_heads = 1;
  config.head_dim = 256;
  config.sliding_window = 512;
  config.query_pre_attn_scalar = 256;
  config.rms_norm_eps = 1e-6;
  config.rope_full = {1e6, 1.0};
  config.rope_sliding = {1e4, 1.0};
  for (int layer = 0; layer < 18; ++layer) {
    config.layer_kinds.push_back((layer + 1) % 6 == 0 ? LayerKind::kFull : LayerKind::kSliding);
  }
  return config;
}

class NullSink final : public HiddenStateSink {
 public:
  void hidden_state(std::int64_t, ConstTensorView, const Moment&, bool) override {}
};

struct Times {
  double median_ms;
  double spread_ms;  // from the first quartile to the third
};

template <typename Work>
double milliseconds(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

Times summarize(std::vector<double> times_ms) {
  std::sort(times_ms.begin(), times_ms.end());
  const std::size_t n = times_ms.size();
  return {times_ms[n / 2], times_ms[n * 3 / 4] - times_ms[n / 4]};
}

std::vector<ConstMatrixView> projections(const LayerWeights& layer) {
  std::vector<ConstMatrixView> all = layer.qkv;
  all.insert(all.end(), {layer.o, layer.gate_up, layer.down});
  return all;
}

// The projections of all layers, on the model's own weights, so that they come from memory as in the forward
// pass.
class ProjectionGemms {
 public:
  ProjectionGemms(Ops& ops, const TextConfig& config, std::vector<LayerWeights> layers,
                  std::int64_t num_tokens)
      : ops_(ops), layers_(std::move(layers)), num_tokens_(num_tokens) {
    const std::int64_t widest = std::max({config.hidden_size, 2 * config.intermediate_size,
                                          (config.num_heads + 2 * config.num_kv_heads) * config.head_dim});
    in_ = Buffer(ops.memory(), static_cast<std::size_t>(num_tokens * widest) * sizeof(float));
    out_ = Buffer(ops.memory(), static_cast<std::size_t>(num_tokens * widest) * sizeof(float));
    std::fill_n(static_cast<float*>(in_.data()), num_tokens * widest, 0.01f);
  }

  void run() {
    for (const LayerWeights& layer : layers_) {
      for (const ConstMatrixView& w : projections(layer)) {
        ops_.gemm(in_.view(DType::kF32, {num_tokens_, w.columns}), w,
                  out_.view(DType::kF32, {num_tokens_, w.rows}), ops_.stream());
      }
    }
  }

 private:
  Ops& ops_;
  std::vector<LayerWeights> layers_;
  std::int64_t num_tokens_;
  Buffer in_;
  Buffer out_;
};

double projection_gflop(const std::vector<LayerWeights>& layers, std::int64_t num_tokens) {
  double elements = 0;
  for (const LayerWeights& layer : layers) {
    for (const ConstMatrixView& w : projections(layer))
      elements += static_cast<double>(w.rows * w.columns);
  }
  return 2e-9 * elements * static_cast<double>(num_tokens);
}

void measure(Ops& ops, TextEncoder& encoder, const std::vector<LayerWeights>& layers, const Options& options,
             const std::vector<std::int64_t>& lengths, std::int64_t threads) {
  std::vector<std::int64_t> offsets = {0};
  for (std::int64_t length : lengths)
    offsets.push_back(offsets.back() + length);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(offsets.back()));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(i * 37 % kVocabularyUsed);
  NullSink sink;
  NoLinks links;
  ProjectionGemms gemms(ops, encoder.config(), layers, offsets.back());

  // Turn about, so that a slow moment of the machine meets both.
  std::vector<double> forward_ms;
  std::vector<double> gemm_ms;
  for (int round = 0; round <= options.rounds; ++round) {
    const double forward = milliseconds([&] { encoder.forward({ids, offsets}, links, sink); });
    const double gemm = milliseconds([&] { gemms.run(); });
    if (round == 0) continue;  // warms caches and memory
    forward_ms.push_back(forward);
    gemm_ms.push_back(gemm);
  }
  const Times forward = summarize(forward_ms);
  const Times gemm = summarize(gemm_ms);
  std::string name;
  for (std::int64_t length : lengths)
    name.append(name.empty() ? "" : "+").append(std::to_string(length));
  std::printf("%7lld  %-24s %10.1f %8.1f %10.1f %8.1f %8.1f %7.2f\n", static_cast<long long>(threads),
              name.c_str(), forward.median_ms, forward.spread_ms, gemm.median_ms, gemm.spread_ms,
              1e3 * projection_gflop(layers, offsets.back()) / gemm.median_ms,
              forward.median_ms / gemm.median_ms);
}

/// A model's files, or random weights.
struct Model {
  TextConfig config;
  std::shared_ptr<const WeightSource> source;
};

Model open(const Options& options) {
  if (options.model.empty()) return {config_270m(), std::make_shared<RandomSource>(config_270m(), 1)};
  const ModelFiles files = open_model(options.model);
  return {files.config(), files.checkpoint()};
}

void run(const Options& options) {
  const Model model = open(options);
  std::printf("threads  prompts' tokens          forward ms   spread    GEMM ms   spread  GFLOP/s   ratio\n");
  for (std::int64_t threads : options.threads) {
    const std::unique_ptr<Ops> ops = make_cpu_ops(static_cast<int>(threads));
    TextWeights weights =
        load_text_weights(*model.source, model.config, whole_model(model.config, 0), *ops, {});
    const std::vector<LayerWeights> layers = weights.layers;
    std::int64_t most_tokens = 1;
    for (const auto& lengths : options.batches) {
      most_tokens = std::max(most_tokens, std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}));
    }
    TextWorkspace workspace(model.config, {weights.heads, weights.ffn_width}, *ops, most_tokens);
    TextEncoder encoder(model.config, std::move(weights), workspace, *ops);
    for (const auto& lengths : options.batches)
      measure(*ops, encoder, layers, options, lengths, threads);
    std::printf("%s\n", ops->description().c_str());
  }
}

}  // namespace
}  // namespace gemmad

int main(int argc, char** argv) {
  try {
    gemmad::run(gemmad::parse_options(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "forward_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
