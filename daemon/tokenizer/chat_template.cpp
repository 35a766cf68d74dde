#include "daemon/tokenizer/chat_template.h"

#include <algorithm>
#include <stdexcept>

#include "daemon/tokenizer/prompt_encoder.h"

namespace gemmad {
namespace {

constexpr std::string_view kStartOfTurn = "<start_of_turn>";
constexpr std::string_view kEndOfTurn = "<end_of_turn>";

/// The piece of a control token of the template.
std::string control_piece(const Tokenizer& tokenizer, std::int32_t id, std::string_view what) {
  if (!tokenizer.is_special(id)) {
    throw TokenizerError(
        "the tokenizer has no control token " + std::string(what) +
        ", which a prompt to enhance needs; use the tokenizer.json of an instruction-tuned Gemma 3");
  }
  return std::string(tokenizer.piece(id));
}

void refuse_control_tokens(const Tokenizer& tokenizer, std::string_view text, const std::string& name) {
  std::vector<std::int32_t> ids = tokenizer.encode(text);
  const bool starts_with_bos = !tokenizer.encode("").empty();
  const auto found = std::find_if(ids.begin() + (starts_with_bos ? 1 : 0), ids.end(),
                                  [&](std::int32_t id) { return tokenizer.is_special(id); });
  if (found == ids.end()) return;
  throw TokenizerError("the " + name + " holds the control token " + quote(tokenizer.piece(*found)) +
                       "; text to enhance may hold none: leave it out");
}

std::string render(const Tokenizer& tokenizer, std::string_view system, std::string_view content) {
  const std::string start = control_piece(tokenizer, tokenizer.find(kStartOfTurn), kStartOfTurn);
  const std::string end = control_piece(tokenizer, tokenizer.find(kEndOfTurn), kEndOfTurn);
  std::string text(tokenizer.piece(tokenizer.bos_id()));
  text += start + "user\n";
  if (!system.empty()) text.append(system) += "\n\n";
  return text.append(content) += end + "\n" + start + "model\n";
}

EnhancePrompt with_image(const Tokenizer& tokenizer, std::string_view system, std::string_view prompt,
                         const ImageTokens& image) {
  if (image.count < 1)
    throw std::invalid_argument("an image has " + std::to_string(image.count) + " tokens, must be 1 or more");
  const std::string begin =
      control_piece(tokenizer, image.begin, "boi_token_index " + std::to_string(image.begin));
  const std::string end = control_piece(tokenizer, image.end, "eoi_token_index " + std::to_string(image.end));
  const std::string content = "User Raw Input Prompt: " + std::string(prompt) + ".";

  EnhancePrompt out;
  out.text = render(tokenizer, system, begin + std::string(strip_white_space(content)));
  // Control tokens split a text, so what lies between these two does not change the ids around them.
  out.ids = tokenizer.encode(
      render(tokenizer, system, "\n\n" + begin + end + "\n\n" + std::string(strip_white_space(content))));
  const auto first = std::find(out.ids.begin(), out.ids.end(), image.begin) + 1;
  out.first_soft_token = first - out.ids.begin();
  out.ids.insert(first, static_cast<std::size_t>(image.count), image.soft);
  return out;
}

}  // namespace

EnhancePrompt enhance_prompt(const Tokenizer& tokenizer, std::string_view system, std::string_view prompt,
                             const ImageTokens* image) {
  refuse_control_tokens(tokenizer, system, "system prompt");
  refuse_control_tokens(tokenizer, prompt, "prompt");
  if (image != nullptr) return with_image(tokenizer, system, prompt, *image);
  EnhancePrompt out;
  const std::string content = "user prompt: " + std::string(prompt);
  out.text = render(tokenizer, system, strip_white_space(content));
  out.ids = tokenizer.encode(out.text);
  return out;
}

}  // namespace gemmad
