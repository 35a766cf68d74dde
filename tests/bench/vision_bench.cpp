// The time that an image takes on a GPU: a whole tower with random weights, from patches on the host to
// features.
//
// vision_bench [ROUNDS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "config/model_presets.h"
#include "daemon/device.h"
#include "daemon/model/vision/random_vision.h"
#include "daemon/model/vision/vision_tower.h"
#include "kernels/cuda/cuda_ops.h"

namespace gemmad {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

void run(int rounds) {
  const int threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u));
  const std::unique_ptr<Ops> ops = make_cuda_ops({0, threads, cache_folder()});
  const VisionConfig config = preset_vision_config(Preset::kGemma3_12b).value();
  const HeadLayout heads = vision_heads(config, *ops);
  const RandomVision source(config, 1, threads);
  VisionTower tower(config, load_vision_weights(source, config, heads, *ops, {}), *ops);
  std::printf("%s; heads of %lld filled up to %lld; weights %.1f MB, work memory %.1f MB\n",
              ops->description().c_str(), static_cast<long long>(config.head_dim()),
              static_cast<long long>(heads.head_dim),
              1e-6 * static_cast<double>(tower.weights().memory.size_bytes()),
              1e-6 * static_cast<double>(VisionTower::size_bytes(config, *ops)));

  std::mt19937 generator(1);
  std::uniform_real_distribution<float> pixels(-1, 1);
  std::vector<float> patches(static_cast<std::size_t>(config.num_patches() * config.patch_width()));
  std::generate(patches.begin(), patches.end(), [&] { return pixels(generator); });
  const ConstTensorView view{patches.data(), DType::kF32, {config.num_patches(), config.patch_width()}};

  std::vector<double> begins;
  std::vector<double> images;
  for (int round = -3; round < rounds; ++round) {
    ops->synchronize(ops->stream());
    const Clock::time_point begin = Clock::now();
    tower.begin(view);
    ops->synchronize(ops->stream());
    const double begin_ms = ms_since(begin);
    while (!tower.step()) {
    }
    ops->synchronize(ops->stream());
    if (round < 0) continue;
    begins.push_back(begin_ms);
    images.push_back(ms_since(begin));
  }
  std::printf("an image: %.3f ms, its begin() %.3f ms of it (medians of %d)\n", median(images),
              median(begins), rounds);
}

}  // namespace
}  // namespace gemmad

int main(int argc, char** argv) {
  try {
    const int rounds = argc > 1 ? std::stoi(argv[1]) : 10;
    if (argc > 2 || rounds < 1) throw std::invalid_argument("takes a number of rounds above 0");
    gemmad::run(rounds);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "vision_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
