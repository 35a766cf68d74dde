#include "daemon/prompt_chat.h"

#include <algorithm>
#include <utility>

#include "config/config_error.h"
#include "config/strict_json.h"
#include "daemon/image/base64.h"
#include "daemon/image/decode_image.h"
#include "daemon/image/prompt_pixels.h"
#include "daemon/tokenizer/chat_template.h"
#include "daemon/tokenizer/system_prompts.h"
#include "daemon/tokenizer/utf8.h"

namespace gemmad {

namespace {

constexpr std::size_t kMaxSystemPromptBytes = std::size_t{64} << 10;

std::string system_prompt(const std::string& path, bool with_image) {
  if (path.empty()) return std::string(default_system_prompt(with_image));
  std::string text = read_text_file(path, kMaxSystemPromptBytes);
  if (!is_valid_utf8(text)) throw ConfigError::of_source(path, "a system prompt must be UTF-8; this is not");
  return text;
}

RgbImage decoded(const ImageInput& input) {
  const ImageLimits limits;
  if (const auto* raw = std::get_if<RawImage>(&input)) {
    check_size(raw->height, raw->width, limits);
    const auto bytes = static_cast<std::size_t>(3 * raw->height * raw->width);
    return raw_image(decode_base64(raw->base64, bytes), raw->height, raw->width, limits);
  }
  const std::string& base64 = std::get<ImageFile>(input).base64;
  return decode_image(decode_base64(base64, static_cast<std::size_t>(limits.max_file_bytes)), limits);
}

ImageTokens image_tokens(const VisionConfig& vision) {
  return {static_cast<std::int32_t>(vision.image_begin_id), static_cast<std::int32_t>(vision.image_token_id),
          vision.tokens_per_image, static_cast<std::int32_t>(vision.image_end_id)};
}

/// All that a prompt is rendered with.
struct Chat {
  const Tokenizer& tokenizer;
  std::int64_t vocab_size;
  std::optional<VisionConfig> vision;
  SystemPrompts system_prompts;

  RenderedPrompt render(const std::string& prompt, const EnhanceOptions& options) const {
    const bool has_image = options.image.has_value();
    if (has_image && !vision) {
      throw RenderError("no_vision",
                        "this daemon's model reads text only; leave the image out, or name a model with a "
                        "vision tower in the config (model, or enhancer.model)");
    }
    const std::string& own = has_image ? system_prompts.image : system_prompts.text;
    RenderedPrompt rendered;
    std::optional<ImageTokens> tokens;
    if (has_image) tokens = image_tokens(*vision);
    EnhancePrompt chat =
        enhance_prompt(tokenizer, options.system_prompt.value_or(own), prompt, tokens ? &*tokens : nullptr);
    rendered.ids = std::move(chat.ids);
    const auto beyond =
        std::find_if(rendered.ids.begin(), rendered.ids.end(), [&](auto id) { return id >= vocab_size; });
    if (beyond != rendered.ids.end()) {
      throw RenderError("bad_token", "the tokenizer gives id " + std::to_string(*beyond) +
                                         ", the model has ids 0 to " + std::to_string(vocab_size - 1));
    }
    if (has_image)
      rendered.image = {chat.first_soft_token.value(),
                        prompt_pixels(decoded(*options.image), vision->image_size)};
    return rendered;
  }
};

}  // namespace

SystemPrompts load_system_prompts(const DaemonConfig& settings) {
  return {system_prompt(settings.enhance_system_prompt, false),
          system_prompt(settings.enhance_system_prompt_image, true)};
}

void check_system_prompts(const SystemPrompts& prompts, const DaemonConfig& settings,
                          const Tokenizer& tokenizer) {
  const auto check = [&](const char* key, const std::string& file, const std::string& text) {
    if (file.empty()) return;
    std::size_t num_tokens = 0;
    try {
      num_tokens = enhance_prompt(tokenizer, text, "", nullptr).ids.size();
    } catch (const TokenizerError& error) {
      throw ConfigError::at_key(file, key, error.what());
    }
    if (static_cast<std::int64_t>(num_tokens) >= settings.enhance_context) {
      throw ConfigError::at_key(file, key,
                                "has " + std::to_string(num_tokens) + " tokens with the chat template, and " +
                                    "enhance.context is " + std::to_string(settings.enhance_context) +
                                    ": no prompt would have room; shorten it, or raise that");
    }
  };
  check("enhance.system_prompt", settings.enhance_system_prompt, prompts.text);
  check("enhance.system_prompt_image", settings.enhance_system_prompt_image, prompts.image);
}

RenderPrompt make_prompt_chat(const Tokenizer& tokenizer, std::int64_t vocab_size,
                              std::optional<VisionConfig> vision, SystemPrompts system_prompts) {
  return [chat = Chat{tokenizer, vocab_size, std::move(vision), std::move(system_prompts)}](
             const std::string& prompt, const EnhanceOptions& options) {
    try {
      return chat.render(prompt, options);
    } catch (const TokenizerError& error) {
      throw RenderError("bad_text", error.what());
    } catch (const ImageError& error) {
      throw RenderError("bad_image", error.what());
    }
  };
}

}  // namespace gemmad
