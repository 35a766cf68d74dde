// Text to token ids and what single ids stand for, as tokenizer.json of the Gemma family says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/tokenizer/tokenizer_error.h"

namespace gemmad {

/// A BPE tokenizer with byte fallback, read from a tokenizer.json. Immutable after load: any number of
/// threads may use one at once. Movable, not copyable; a moved-from one may only be destroyed or assigned to.
class Tokenizer {
 public:
  /// Reads a file of at most 256 MiB. Throws TokenizerError when it cannot be read, is no tokenizer.json,
  /// holds contradictions, or asks for a part that is not implemented.
  static Tokenizer load(const std::filesystem::path& tokenizer_json);

  /// The same from memory. `source_name` stands for the file in error messages.
  static Tokenizer parse(std::string_view json, const std::string& source_name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// The ids of `utf8`, with BOS in front when the file's post-processor adds one. Takes O(n log n) time and
  /// O(n) memory. Added tokens are found in the text whoever typed them. Throws TokenizerError when `utf8` is
  /// not valid UTF-8 (see is_valid_utf8) or is longer than 1 GiB.
  std::vector<std::int32_t> encode(std::string_view utf8) const;

  /// The id of "<bos>".
  std::int32_t bos_id() const;

  /// 1 + the largest id that the file names. Every id from encode is smaller.
  std::size_t vocab_size() const;

  /// The text of a token as the file spells it ("▁the", "<0x0A>"); empty for an id that the file does not
  /// name or that is out of range. Lives as long as the tokenizer.
  std::string_view piece(std::int32_t id) const;

  /// The id of a token as the file spells it; -1 when it names none so.
  std::int32_t find(std::string_view piece) const;

  /// True for control tokens, which decoded text leaves out: the added tokens that the file calls special.
  bool is_special(std::int32_t id) const;

  /// The byte that a byte piece ("<0x0A>") stands for; nothing for every other id.
  std::optional<std::uint8_t> byte_of(std::int32_t id) const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

}  // namespace gemmad
