#include "daemon/generator.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "daemon/gather.h"
#include "daemon/image/patches.h"
#include "daemon/rank_status.h"
#include "kernels/base/device_error.h"

namespace gemmad {

namespace {

/// More than a rank's slots.
constexpr std::size_t kMostNews = 64;

/// A rank's share of a report, as it travels.
struct NewsRecord {
  std::uint32_t count = 0;
  std::array<SequenceNews, kMostNews> news{};
  std::array<char, 512> error{};
};

std::int64_t image_tokens(const GeneratorParts& parts) {
  return parts.vision != nullptr ? parts.vision->config.tokens_per_image : 0;
}

/// Of a prompt without images. Throws std::invalid_argument for a workspace that is too small.
std::int64_t chunk_rows(const GeneratorParts& parts, const TextWorkspace& workspace) {
  const std::int64_t rows = workspace.max_batch_tokens() - image_tokens(parts);
  if (rows < 1) {
    throw std::invalid_argument("an image takes " + std::to_string(image_tokens(parts)) +
                                " tokens of one pass, and batch_tokens is " +
                                std::to_string(workspace.max_batch_tokens()) + ": raise it");
  }
  return std::min(parts.ops.efficient_rows(), rows);
}

KvCacheLimits cache_limits(const GeneratorParts& parts, const TextWorkspace& workspace) {
  return {parts.num_slots, parts.context, chunk_rows(parts, workspace) + image_tokens(parts)};
}

}  // namespace

struct Generator::Part {
  Part(const GeneratorParts& parts, const GenerationPart& part)
      : links(part.links),
        cache(parts.model, part.weights.layer_range, part.weights.heads, parts.ops,
              cache_limits(parts, part.workspace)),
        decoder(parts.model, part.weights, part.workspace, cache, parts.ops),
        head(parts.model, part.weights, part.place, parts.num_slots, parts.ops) {}

  PartLinks& links;
  KvCache cache;
  TextDecoder decoder;
  TextHead head;
  std::optional<VisionTower> tower;  // made for the first image
  JobId looked_at = 0;               // whose image the tower has

  /// Only the first layers need to see.
  bool has_eyes() const { return decoder.weights().layer_range.begin == 0; }
};

Generator::Generator(const GeneratorParts& parts, Deployment& deployment)
    : parts_(parts), sequences_(parts.num_slots, 1, 0) {
  const std::optional<GenerationPart> part = deployment.generation_part();
  if (!part) return;
  replica_ = part->replica;
  sequences_ = Sequences(parts.num_slots, chunk_rows(parts, part->workspace), image_tokens(parts));
  part_ = std::make_unique<Part>(parts, *part);
  part_->head.tune();
}

Generator::~Generator() = default;

StepReport Generator::step(const GenerationOrder& order) {
  follow(order);
  std::vector<SequenceNews> news;
  std::string error;
  if (part_) {
    const Pass pass = sequences_.next_pass();
    try {
      news = run(pass);
    } catch (const BootstrapError&) {
      throw;  // a rank is lost
    } catch (const DeviceError&) {
      throw;  // and so is this one's device: the other ranks will miss it
    } catch (const std::exception& failure) {
      error = failure.what();
      // Ranks that wait for this one in the pass will only see that it is out of step.
      spdlog::error("generation: {}", error);
      news.clear();
      for (const Sequence* sequence : pass.sequences)
        news.push_back({sequence->start.id, SequenceNews::Kind::kFailed, 0});
    }
  }
  const StepReport report = exchange(news, error);
  for (const SequenceNews& one : report.news)
    sequences_.hear(one);
  return report;
}

void Generator::follow(const GenerationOrder& order) {
  for (const JobId id : order.ends)
    sequences_.end(id);
  for (const SequenceStart& start : order.begins) {
    if (part_ && start.replica == replica_) sequences_.begin(start);
  }
}

std::vector<SequenceNews> Generator::run(const Pass& pass) {
  switch (pass.kind) {
    case Pass::Kind::kNone:
      break;
    case Pass::Kind::kLook:
      if (look(*pass.sequences.front()))
        return {{pass.sequences.front()->start.id, SequenceNews::Kind::kLooked, 0}};
      break;
    case Pass::Kind::kPrefill:
      prefill(pass);
      sequences_.prefilled(pass);
      break;
    case Pass::Kind::kDecode:
      return decode(pass);
  }
  return {};
}

/// A few layers of the tower at a time: an encode must not wait for all of them.
bool Generator::look(const Sequence& sequence) {
  if (!part_->has_eyes()) return false;
  const VisionConfig& config = parts_.vision->config;
  if (!part_->tower) {
    const HeadLayout heads = vision_heads(config, parts_.ops);
    part_->tower.emplace(config, load_vision_weights(*parts_.vision->weights, config, heads, parts_.ops, {}),
                         parts_.ops);
  }
  if (part_->looked_at != sequence.start.id) {
    const std::vector<float> patches =
        patches_of({config.image_size, config.image_size, sequence.start.image->pixels}, config.patch_size,
                   config.patch_width());
    part_->tower->begin({patches.data(), DType::kF32, {config.num_patches(), config.patch_width()}});
    part_->looked_at = sequence.start.id;
  }
  const bool is_done = part_->tower->step();
  parts_.ops.synchronize(parts_.ops.stream());
  return is_done && part_->head.has_logits();
}

void Generator::prefill(const Pass& pass) {
  const Sequence& sequence = *pass.sequences.front();
  std::vector<CachedRow> rows;
  for (std::int64_t position = pass.begin; position < pass.end; ++position) {
    rows.push_back({sequence.start.ids[static_cast<std::size_t>(position)], sequence.slot,
                    static_cast<std::int32_t>(position),
                    static_cast<std::int32_t>(sequence.first_unseen(position))});
  }
  std::optional<ImageRows> image;
  if (part_->tower && sequence.image_holds(pass.begin, pass.end))
    image = {sequence.start.image->first_row - pass.begin, part_->tower->features()};
  part_->decoder.prefill(rows, image, part_->links);
  part_->links.wait(parts_.ops.stream());
  parts_.ops.synchronize(parts_.ops.stream());
}

std::vector<SequenceNews> Generator::decode(const Pass& pass) {
  std::vector<CachedRow> rows;
  for (const Sequence* sequence : pass.sequences) {
    const auto position = static_cast<std::int32_t>(sequence->num_cached);
    rows.push_back({sequence->start.ids.back(), sequence->slot, position, position + 1});
  }
  const ConstTensorView last = part_->decoder.decode(rows, part_->links);
  part_->head.run(last, static_cast<std::int64_t>(rows.size()), part_->links);
  std::vector<SequenceNews> news;
  if (!part_->head.has_logits()) return news;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const SequenceStart& start = pass.sequences[row]->start;
    const ConstTensorView logits = part_->head.logits(static_cast<std::int64_t>(row));
    const std::int32_t token = chooser_.choose(logits, start.ids, start.sampling, start.num_generated);
    news.push_back({start.id, SequenceNews::Kind::kToken, token});
  }
  return news;
}

std::uint64_t Generator::size_bytes() const {
  if (!part_) return 0;
  std::uint64_t tower = 0;
  if (part_->tower) {
    tower = part_->tower->weights().memory.size_bytes() +
            VisionTower::size_bytes(parts_.vision->config, parts_.ops);
  }
  return part_->cache.size_bytes() + part_->decoder.size_bytes() + part_->head.size_bytes() + tower;
}

StepReport Generator::exchange(const std::vector<SequenceNews>& news, const std::string& error) {
  NewsRecord mine;
  mine.count = static_cast<std::uint32_t>(std::min(news.size(), kMostNews));
  std::copy_n(news.begin(), mine.count, mine.news.begin());
  mine.error = fixed_text<sizeof mine.error>(error);
  StepReport report;
  const std::vector<NewsRecord> all = gather(parts_.bootstrap, mine, parts_.compute_timeout);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    report.news.insert(report.news.end(), all[rank].news.begin(), all[rank].news.begin() + all[rank].count);
    if (report.error.empty() && all[rank].error[0] != '\0')
      report.error = "rank " + std::to_string(rank) + ": " + all[rank].error.data();
  }
  return report;
}

}  // namespace gemmad
