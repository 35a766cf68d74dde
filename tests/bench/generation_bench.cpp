// What continuing prompts takes on a GPU: a token of one sequence and of several at once, a chunk of a
// prompt, and a prompt with an image up to its first token.
//
// generation_bench [--preset NAME] [--layers N] [--rounds N]
//   --preset   sizes, as the key of the config; random weights
//   --layers   the first N only; 0: all
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "config/model_presets.h"
#include "daemon/device.h"
#include "daemon/model/generation/sampling.h"
#include "daemon/model/generation/text_decoder.h"
#include "daemon/model/generation/text_head.h"
#include "daemon/model/random_weights.h"
#include "daemon/model/text_encoder.h"
#include "daemon/model/vision/random_vision.h"
#include "daemon/model/vision/vision_tower.h"
#include "kernels/cuda/cuda_ops.h"
#include "tests/bench/flags.h"

namespace gemmad {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMaxSlots = 8;
constexpr std::int64_t kContext = 4096;
constexpr std::int64_t kChunk = 256;  // an image's

struct Options {
  Preset preset = Preset::kGemma3_12b;
  std::int64_t layers = 0;
  int rounds = 30;
};

Options parse_options(int argc, char** argv) {
  Options options;
  for_each_flag(argc, argv, [&](const std::string& flag, const std::string& value) {
    if (flag == "--preset") {
      bool found = false;
      for (Preset preset : {Preset::kGemma3_4b, Preset::kGemma3_12b, Preset::kGemma3_27b}) {
        if (name(preset) != value) continue;
        options.preset = preset;
        found = true;
      }
      if (!found) throw std::invalid_argument("no preset with eyes '" + value + "'");
    } else if (flag == "--layers") {
      options.layers = std::stoll(value);
    } else if (flag == "--rounds") {
      options.rounds = std::stoi(value);
    } else {
      throw std::invalid_argument("unknown option " + flag);
    }
  });
  return options;
}

class Bench {
 public:
  Bench(const TextConfig& config, const VisionConfig& vision, Ops& ops, int threads, int rounds)
      : config_(config), vision_(vision), ops_(ops), rounds_(rounds) {
    TextWeights weights =
        load_text_weights(RandomWeights(config, 1, threads), config, whole_model(config, 0), ops, {});
    const ActivationWidths widths{weights.heads, weights.ffn_width};
    weight_bytes_ =
        weights.size_bytes() +
        static_cast<std::uint64_t>(config.vocab_size * config.hidden_size) * size_bytes(DType::kBF16);
    workspace_.emplace(config, widths, ops, 512);
    cache_.emplace(config, weights.layer_range, weights.heads, ops,
                   KvCacheLimits{kMaxSlots, kContext, kChunk});
    head_.emplace(config, weights, TextHead::Place{}, kMaxSlots, ops);
    encoder_.emplace(config, weights, *workspace_, ops);
    encoder_->tune(512);
    head_->tune();
    decoder_.emplace(config, std::move(weights), *workspace_, *cache_, ops);
    tower_.emplace(
        vision,
        load_vision_weights(RandomVision(vision, 1, threads), vision, vision_heads(vision, ops), ops, {}),
        ops);
  }

  std::uint64_t weight_bytes() const { return weight_bytes_; }

  /// Of a token of each of `num_sequences` with `context` tokens before it: until they are chosen on the
  /// host.
  double token_ms(std::int64_t num_sequences, std::int64_t context) {
    for (std::int64_t slot = 0; slot < num_sequences; ++slot)
      prefill(slot, 0, context, std::nullopt);
    std::vector<CachedRow> rows;
    for (std::int64_t slot = 0; slot < num_sequences; ++slot) {
      const auto position = static_cast<std::int32_t>(context);
      rows.push_back({7, static_cast<std::int32_t>(slot), position, position + 1});
    }
    const std::vector<std::int32_t> ids{2, 7};
    return median_ms([&] {
      const ConstTensorView last = decoder_->decode(rows, links_);
      head_->run(last, num_sequences, links_);
      for (std::int64_t row = 0; row < num_sequences; ++row)
        chooser_.choose(head_->logits(row), ids, {}, 0);
    });
  }

  double chunk_ms(std::int64_t begin, std::int64_t num_rows) {
    prefill(0, 0, begin, std::nullopt);
    return median_ms([&] { prefill(0, begin, num_rows, std::nullopt); });
  }

  /// A prompt of `before` tokens, an image, `behind` tokens, up to the first token that follows.
  double image_ms(std::int64_t before, std::int64_t behind) {
    const std::vector<float> patches(static_cast<std::size_t>(vision_.num_patches() * vision_.patch_width()),
                                     0.25f);
    const ConstTensorView view{patches.data(), DType::kF32, {vision_.num_patches(), vision_.patch_width()}};
    const std::int64_t image_end = before + vision_.tokens_per_image;
    return median_ms([&] {
      tower_->begin(view);
      while (!tower_->step()) {
      }
      prefill(0, 0, before, std::nullopt);
      prefill(0, before, vision_.tokens_per_image, tower_->features());
      prefill(0, image_end, behind - 1, std::nullopt);
      const auto last = static_cast<std::int32_t>(image_end + behind - 1);
      head_->run(decoder_->decode(std::vector<CachedRow>{{7, 0, last, last + 1}}, links_), 1, links_);
      chooser_.choose(head_->logits(0), std::vector<std::int32_t>{2}, {}, 0);
    });
  }

  double tower_ms() {
    const std::vector<float> patches(static_cast<std::size_t>(vision_.num_patches() * vision_.patch_width()),
                                     0.25f);
    const ConstTensorView view{patches.data(), DType::kF32, {vision_.num_patches(), vision_.patch_width()}};
    return median_ms([&] {
      tower_->begin(view);
      while (!tower_->step()) {
      }
    });
  }

 private:
  void prefill(std::int64_t slot, std::int64_t begin, std::int64_t count,
               const std::optional<ConstTensorView>& features) {
    const std::int64_t chunk = features ? count : ops_.efficient_rows();
    for (std::int64_t first = begin; first < begin + count; first += chunk) {
      std::vector<CachedRow> rows;
      const std::int64_t end = std::min(first + chunk, begin + count);
      for (std::int64_t position = first; position < end; ++position) {
        const auto seen = static_cast<std::int32_t>(features ? end : position + 1);
        rows.push_back({static_cast<std::int32_t>(position * 7919 % 200'000), static_cast<std::int32_t>(slot),
                        static_cast<std::int32_t>(position), seen});
      }
      std::optional<ImageRows> image;
      if (features) image = {0, *features};
      decoder_->prefill(rows, image, links_);
    }
  }

  template <typename Work>
  double median_ms(const Work& work) {
    std::vector<double> times;
    for (int round = -3; round < rounds_; ++round) {
      ops_.synchronize(ops_.stream());
      const Clock::time_point begin = Clock::now();
      work();
      ops_.synchronize(ops_.stream());
      const std::chrono::duration<double, std::milli> ms = Clock::now() - begin;
      if (round >= 0) times.push_back(ms.count());
    }
    std::nth_element(times.begin(), times.begin() + rounds_ / 2, times.end());
    return times[static_cast<std::size_t>(rounds_ / 2)];
  }

  TextConfig config_;
  VisionConfig vision_;
  Ops& ops_;
  int rounds_;
  NoLinks links_;
  TokenChooser chooser_;
  std::uint64_t weight_bytes_ = 0;
  std::optional<TextWorkspace> workspace_;
  std::optional<KvCache> cache_;
  std::optional<TextHead> head_;
  std::optional<TextEncoder> encoder_;
  std::optional<TextDecoder> decoder_;
  std::optional<VisionTower> tower_;
};

void run(const Options& options) {
  TextConfig config = preset_config(options.preset);
  if (options.layers > 0) {
    config.num_layers = std::min(config.num_layers, options.layers);
    config.layer_kinds.resize(static_cast<std::size_t>(config.num_layers));
  }
  const int threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u));
  const std::unique_ptr<Ops> ops = make_cuda_ops({0, threads, cache_folder()});
  ops->load_tuning();
  Bench bench(config, preset_vision_config(options.preset).value(), *ops, threads, options.rounds);
  if (const auto problem = ops->save_tuning()) std::fprintf(stderr, "%s\n", problem->c_str());
  std::printf("%s, %lld layers, %.2f GB of weights\n", ops->description().c_str(),
              static_cast<long long>(config.num_layers), 1e-9 * static_cast<double>(bench.weight_bytes()));
  for (const std::int64_t context : {128, 1024, 3000}) {
    for (const std::int64_t sequences : {1, 2, 4, 8}) {
      const double ms = bench.token_ms(sequences, context);
      std::printf("token of %lld sequences after %4lld: %7.3f ms, %.0f GB/s of weights\n",
                  static_cast<long long>(sequences), static_cast<long long>(context), ms,
                  1e-6 * static_cast<double>(bench.weight_bytes()) / ms);
    }
  }
  for (const std::int64_t rows : {64, 128, 256})
    std::printf("chunk of %lld after 1000: %7.3f ms\n", static_cast<long long>(rows),
                bench.chunk_ms(1000, rows));
  std::printf("tower: %7.3f ms\n", bench.tower_ms());
  std::printf("prompt of 120 + image + 60 to its first token: %7.3f ms\n", bench.image_ms(120, 60));
}

}  // namespace
}  // namespace gemmad

int main(int argc, char** argv) {
  try {
    gemmad::run(gemmad::parse_options(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "generation_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
