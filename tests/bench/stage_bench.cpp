// Where the time of a forward pass on a GPU goes: the whole pass, and each of its operations alone, recorded
// over all layers on the model's own weights, so that these come from memory as in the pass.
//
// stage_bench [--preset NAME] [--layers N] [--slices N] [--tokens LIST] [--rounds N]
//   --preset   sizes, as the key of the config; random weights
//   --layers   the first N only; 0: all
//   --slices   as the first rank of N that share every layer (strategy tensor), its sums over them left out:
//   what
//              such a rank takes beside them
//   --tokens   batches, each a sum of prompt lengths: "128,1024+1024"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "config/model_presets.h"
#include "daemon/device.h"
#include "daemon/model/random_weights.h"
#include "daemon/model/text_encoder.h"
#include "kernels/cuda/cuda_ops.h"
#include "tests/bench/flags.h"
#include "tests/bench/prompt_lengths.h"

namespace gemmad {
namespace {

using Lengths = std::vector<std::int64_t>;

struct Options {
  Preset preset = Preset::kGemma3_12b;
  std::int64_t layers = 0;
  int slices = 1;
  std::vector<Lengths> batches = {{16}, {128}, {128, 128}, {1024}, {1024, 1024}};
  int rounds = 30;
};

Preset parse_preset(const std::string& text) {
  for (Preset preset : {Preset::kGemma3_270m, Preset::kGemma3_1b, Preset::kGemma3_4b, Preset::kGemma3_12b,
                        Preset::kGemma3_27b}) {
    if (name(preset) == text) return preset;
  }
  throw std::invalid_argument("no preset '" + text + "'");
}

Options parse_options(int argc, char** argv) {
  Options options;
  for_each_flag(argc, argv, [&](const std::string& flag, const std::string& value) {
    if (flag == "--preset") {
      options.preset = parse_preset(value);
    } else if (flag == "--layers") {
      options.layers = std::stoll(value);
    } else if (flag == "--slices") {
      options.slices = std::stoi(value);
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

class NullSink final : public HiddenStateSink {
 public:
  void hidden_state(std::int64_t, ConstTensorView, const Moment&, bool) override {}
};

/// Of one batch: the pass, and its operations.
class Stages {
 public:
  Stages(Ops& ops, TextEncoder& encoder, TextWorkspace& workspace, const Lengths& lengths, int rounds)
      : ops_(ops), encoder_(encoder), workspace_(workspace), rounds_(rounds) {
    for (std::int64_t length : lengths)
      offsets_.push_back(offsets_.back() + length);
    ids_.resize(static_cast<std::size_t>(offsets_.back()));
    for (std::size_t i = 0; i < ids_.size(); ++i)
      ids_[i] = static_cast<std::int32_t>(i * 7919 % 200'000);
    const TextWeights& weights = encoder.weights();
    a_ = workspace.cut({weights.heads, weights.ffn_width}, ops.padded_rows(offsets_.back()));
  }

  double pass_ms() {
    NullSink sink;
    NoLinks links;
    return median_ms([&] { encoder_.forward({ids_, offsets_}, links, sink); });
  }

  /// Microseconds a layer of `operation`(layer, its weights).
  template <typename Operation>
  double operation_us(const Operation& operation) {
    const auto recordings = ops_.make_recordings();
    const auto& layers = encoder_.weights().layers;
    const auto all = [&] {
      for (std::size_t layer = 0; layer < layers.size(); ++layer)
        operation(static_cast<std::int64_t>(layer), layers[layer]);
    };
    const double ms = median_ms([&] { recordings->run(0, 0, ops_.stream(), std::ref(all)); });
    return 1e3 * ms / static_cast<double>(layers.size());
  }

  void print(const std::string& batch) {
    const Stream stream = ops_.stream();
    const HeadLayout& heads = encoder_.weights().heads;
    const TextConfig& config = encoder_.config();
    const auto kind = [&](std::int64_t layer) { return config.layer_kinds[static_cast<std::size_t>(layer)]; };
    constexpr float kEps = 1e-6f;
    const double pass = pass_ms();
    struct Stage {
      const char* name;
      double us;
    };
    const Stage stages[] = {
        {"qkv", operation_us([&](std::int64_t, const LayerWeights& w) {
           ops_.gemm(a_.normed, w.qkv.front(), a_.qkv, stream);
         })},
        {"norm_rope", operation_us([&](std::int64_t layer, const LayerWeights& w) {
           ops_.norm_rope(a_.qkv, heads, w.q_norm, w.k_norm, kEps, workspace_.rope(kind(layer)), a_.positions,
                          stream);
         })},
        {"attention", operation_us([&](std::int64_t layer, const LayerWeights&) {
           const AttentionParams params{heads, static_cast<float>(config.score_scale()),
                                        kind(layer) == LayerKind::kSliding ? config.sliding_window : 0};
           ops_.attention(a_.qkv, {a_.begins, {}}, params, a_.mixed, stream);
         })},
        {"o", operation_us(
                  [&](std::int64_t, const LayerWeights& w) { ops_.gemm(a_.mixed, w.o, a_.branch, stream); })},
        {"add_norm", operation_us([&](std::int64_t, const LayerWeights& w) {
           ops_.add_norm({a_.branch, nullptr, w.post_attention_norm, a_.state(0), a_.state(1), w.pre_ffn_norm,
                          a_.normed, kEps},
                         stream);
         })},
        {"gate_up", operation_us([&](std::int64_t, const LayerWeights& w) {
           ops_.gemm_geglu(a_.normed, w.gate_up, encoder_.weights().ffn_block, a_.gate_up, a_.gated, stream);
         })},
        {"down", operation_us([&](std::int64_t, const LayerWeights& w) {
           ops_.gemm(a_.gated, w.down, a_.branch, stream);
         })}};
    double sum = stages[4].us;  // there are two of it
    std::printf("%-12s %9.3f", batch.c_str(), pass);
    for (const Stage& stage : stages) {
      std::printf(" %9.1f", stage.us);
      sum += stage.us;
    }
    std::printf(" %9.3f\n", 1e-3 * sum * static_cast<double>(encoder_.weights().layers.size()));
  }

 private:
  template <typename Work>
  double median_ms(const Work& work) {
    std::vector<double> times;
    for (int round = -3; round < rounds_; ++round) {
      ops_.synchronize(ops_.stream());
      const auto begin = std::chrono::steady_clock::now();
      work();
      ops_.synchronize(ops_.stream());
      const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
      if (round >= 0) times.push_back(ms.count());
    }
    std::nth_element(times.begin(), times.begin() + rounds_ / 2, times.end());
    return times[static_cast<std::size_t>(rounds_ / 2)];
  }

  Ops& ops_;
  TextEncoder& encoder_;
  TextWorkspace& workspace_;
  int rounds_;
  std::vector<std::int32_t> ids_;
  std::vector<std::int64_t> offsets_ = {0};
  Activations a_;
};

void run(const Options& options) {
  TextConfig config = preset_config(options.preset);
  if (options.layers > 0) {
    config.num_layers = std::min(config.num_layers, options.layers);
    config.layer_kinds.resize(static_cast<std::size_t>(config.num_layers));
  }
  const int threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u));
  const std::unique_ptr<Ops> ops = make_cuda_ops({0, threads, cache_folder()});
  const auto begin = std::chrono::steady_clock::now();
  const RandomWeights source(config, 1, threads);
  const ShardPlan plan = make_shard_plan(config, {Mode::kSharded, Strategy::kTensor, 0, {}}, options.slices);
  TextWeights weights = load_text_weights(source, config, plan.replicas.front().shards.front(), *ops, {});
  std::int64_t most = 1;
  for (const Lengths& lengths : options.batches) {
    std::int64_t sum = 0;
    for (std::int64_t length : lengths)
      sum += length;
    most = std::max(most, sum);
  }
  TextWorkspace workspace(config, {weights.heads, weights.ffn_width}, *ops, most);
  TextEncoder encoder(config, std::move(weights), workspace, *ops);
  const auto loaded = std::chrono::steady_clock::now();
  encoder.tune(most);
  if (const auto problem = ops->save_tuning()) std::fprintf(stderr, "%s\n", problem->c_str());
  const auto tuned = std::chrono::steady_clock::now();
  std::printf(
      "%s, %lld layers, 1 of %d slices; weights made and loaded in %.1f s, products tuned in %.1f s\n",
      ops->description().c_str(), static_cast<long long>(config.num_layers), options.slices,
      std::chrono::duration<double>(loaded - begin).count(),
      std::chrono::duration<double>(tuned - loaded).count());
  std::printf("%-12s %9s %9s %9s %9s %9s %9s %9s %9s %9s\n", "tokens", "pass ms", "qkv us", "norm_rope",
              "attention", "o us", "add_norm", "gate_up", "down us", "sum ms");
  for (const Lengths& lengths : options.batches) {
    std::string text;
    for (std::int64_t length : lengths)
      text += (text.empty() ? "" : "+") + std::to_string(length);
    Stages(*ops, encoder, workspace, lengths, options.rounds).print(text);
  }
}

}  // namespace
}  // namespace gemmad

int main(int argc, char** argv) {
  try {
    gemmad::run(gemmad::parse_options(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stage_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
