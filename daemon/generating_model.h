// The model that continues prompts: the encoder's own, or one that the settings name for that alone.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/chosen_model.h"
#include "daemon/daemon_facts.h"
#include "daemon/generation_host.h"
#include "daemon/prompt_chat.h"
#include "daemon/tokenizer/tokenizer.h"

namespace gemmad {

/// Chosen once, before anything is loaded; starts one host. Used by the engine thread alone.
class GeneratingModel {
 public:
  /// Both must outlive this.
  GeneratingModel(const DaemonConfig& settings, const ChosenModel& encoder)
      : settings_(settings), encoder_(encoder) {}

  /// Looks at a separate model's files, and on rank 0 reads its tokenizer and the system prompts.
  /// `encoder_tokenizer`, null but on rank 0 of a model that has one, must outlive this. Blocks on
  /// the disk. Throws ConfigError for a system prompt, std::runtime_error for enhance.rank beyond
  /// `num_ranks`, and for a separate model that cannot be read or laid out over them.
  void choose(const Tokenizer* encoder_tokenizer, int rank, int num_ranks);

  /// False where there is no tokenizer: a model made up without files.
  bool exists() const { return model().tokenizer_file.has_value(); }
  /// `parts` and `encoder`: of the encoder's deployments, which must outlive this.
  GenerationHost& start(const DeploymentParts& parts, Residency& encoder);
  /// Null before start().
  GenerationHost* host() { return host_ ? &*host_ : nullptr; }
  const GenerationHost* host() const { return host_ ? &*host_ : nullptr; }

  EnhancerFacts facts() const;
  // Of rank 0.
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  RenderPrompt chat() const;
  /// The ids that end a text.
  std::vector<std::int32_t> ends() const;

 private:
  void choose_separate(int rank, int num_ranks);
  const ChosenModel& model() const { return separate_ ? *separate_ : encoder_; }

  const DaemonConfig& settings_;
  const ChosenModel& encoder_;
  std::optional<ChosenModel> separate_;
  std::optional<Tokenizer> own_tokenizer_;
  const Tokenizer* tokenizer_ = nullptr;
  SystemPrompts system_prompts_;
  std::optional<Residency> residency_;  // of a separate model
  std::optional<GenerationHost> host_;
};

}  // namespace gemmad
