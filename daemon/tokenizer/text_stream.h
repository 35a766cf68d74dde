// Token ids back to text, as they come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "daemon/tokenizer/tokenizer.h"

namespace gemmad {

/// Decodes ids one by one. All that it returns, put together, is what decode() makes of all ids: control
/// tokens and ids without a piece are left out, U+2581 becomes a space, and the bytes of a run of byte pieces
/// (which what is left out does not end) are text if the whole run is valid UTF-8, or else each is a U+FFFD.
/// So every part that is returned is valid UTF-8.
class TextStream {
 public:
  /// A longer run of byte pieces is taken for several: what is held must have a bound. It takes as many ids.
  static constexpr std::size_t kMaxRunBytes = 65536;

  /// Keeps a reference to `tokenizer`.
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// The text that is certain with this id; may be empty. A run that may still become valid is held back.
  std::string push(std::int32_t id);

  /// The rest, at the end of all ids. The next id begins a new text.
  std::string finish();

 private:
  std::string push_byte(std::uint8_t byte);

  const Tokenizer& tokenizer_;
  std::string run_;              // of bytes held back, valid but for a last character that may lack bytes
  std::size_t valid_bytes_ = 0;  // of run_
  bool is_broken_ = false;       // the run at hand can no longer become valid, and is not held
};

/// The text of `ids`.
std::string decode(const Tokenizer& tokenizer, std::span<const std::int32_t> ids);

}  // namespace gemmad
