#include "config/gemma_pairing.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>

namespace gemmad {
namespace {

constexpr std::string_view kFirstPaired = "2.4.0";

using Version = std::array<std::int64_t, 3>;

/// "2.4", "2.4.1", "2.4.1-rc2", "2.4.1+x": what follows the numbers is of no account. Nothing for all else.
std::optional<Version> parse_version(std::string_view text) {
  Version version{};
  std::size_t count = 0;
  while (count < version.size()) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version[count]);
    if (error != std::errc() || version[count] < 0) return std::nullopt;
    ++count;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (!text.starts_with('.')) break;
    text.remove_prefix(1);
  }
  return count >= 2 ? std::optional(version) : std::nullopt;
}

std::string in_quotes(std::string_view text) {
  return "'" + printable(text) + "'";
}

std::string found(const std::optional<std::string>& gemma_version) {
  return gemma_version ? "is version " + in_quotes(*gemma_version) : "has no gemma_version in its config";
}

bool names_no_gemma_but_needs_one(const GemmaPairing& pairing, const std::string& source_name) {
  if (!pairing.model_version) return false;
  const std::optional<Version> version = parse_version(*pairing.model_version);
  if (!version) {
    throw ConfigError::at_key(source_name, "model_version",
                              "is " + in_quotes(*pairing.model_version) + ", must be like '2.3.0'");
  }
  return *version >= *parse_version(kFirstPaired);
}

}  // namespace

std::optional<std::string> check_pairing(const GemmaPairing& pairing, std::string_view model_type,
                                         const std::optional<std::string>& gemma_version,
                                         const std::string& source_name) {
  if (pairing.gemma_version) {
    if (gemma_version == pairing.gemma_version) return std::nullopt;
    throw ConfigError::of_source(source_name, "was trained with Gemma " + in_quotes(*pairing.gemma_version) +
                                                  ", but the Gemma here " + found(gemma_version) +
                                                  "; name that Gemma as the model");
  }
  if (names_no_gemma_but_needs_one(pairing, source_name)) {
    const std::string subject = "is of version " + printable(*pairing.model_version) +
                                ", which needs a Gemma of its own, but does not say which";
    if (!gemma_version)
      return source_name + ": " + subject +
             "; the Gemma here has no version either: nothing shows that it fits";
    throw ConfigError::of_source(source_name, subject + ", and the Gemma here " + found(gemma_version) +
                                                  "; use the two files as published");
  }
  if (model_type == "gemma3" || model_type == "gemma3_text") return std::nullopt;
  throw ConfigError::of_source(source_name, "needs a Gemma 3, but the model's type is " +
                                                in_quotes(model_type) + "; name a Gemma 3 as the model");
}

}  // namespace gemmad
