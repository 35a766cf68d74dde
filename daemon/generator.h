// This rank's part in continuing sequences: one pass a step, in step with the other ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "comm/bootstrap.h"
#include "daemon/deployment.h"
#include "daemon/generation_order.h"
#include "daemon/model/generation/kv_cache.h"
#include "daemon/model/generation/sampling.h"
#include "daemon/model/generation/text_decoder.h"
#include "daemon/model/generation/text_head.h"
#include "daemon/model/vision/vision_source.h"
#include "daemon/model/vision/vision_tower.h"
#include "daemon/sequences.h"
#include "kernels/ops.h"

namespace gemmad {

/// What a generator is made with. What it names must outlive it.
struct GeneratorParts {
  Bootstrap& bootstrap;
  Ops& ops;
  const TextConfig& model;
  const VisionSource* vision = nullptr;  // null where it has none: images are refused before they come here
  std::int64_t num_slots = 1;            // of each replica
  std::int64_t context = 0;              // positions of a sequence
  std::chrono::milliseconds compute_timeout{600'000};
};

/// Made with the first sequence, and gone before its deployment is. Used by the engine thread alone.
class Generator {
 public:
  /// Takes the memory of generation, but for the vision tower's, which comes with the first image. Not
  /// collective. Throws std::bad_alloc.
  Generator(const GeneratorParts& parts, Deployment& deployment);
  ~Generator();

  /// Collective. A sequence that a rank which computes alone cannot continue fails alike on all ranks. Throws
  /// BootstrapError when a rank is lost, or fails where others of its replica wait for it, DeviceError when
  /// this rank's device failed: fatal.
  StepReport step(const GenerationOrder& order);

  /// Bytes of device memory that it has taken.
  std::uint64_t size_bytes() const;

 private:
  struct Part;

  void follow(const GenerationOrder& order);
  std::vector<SequenceNews> run(const Pass& pass);
  bool look(const Sequence& sequence);
  void prefill(const Pass& pass);
  std::vector<SequenceNews> decode(const Pass& pass);
  StepReport exchange(const std::vector<SequenceNews>& news, const std::string& error);

  GeneratorParts parts_;
  Sequences sequences_;         // of this rank's replica
  std::unique_ptr<Part> part_;  // null where this rank has no layers
  int replica_ = -1;
  TokenChooser chooser_;
};

}  // namespace gemmad
