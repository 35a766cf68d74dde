#include "daemon/tokenizer/text_stream.h"

#include <string_view>
#include <utility>

#include "daemon/tokenizer/bpe.h"
#include "daemon/tokenizer/utf8.h"

namespace gemmad {
namespace {

std::string replacements(std::size_t count) {
  std::string text;
  while (count-- > 0)
    append_utf8(text, U'\uFFFD');
  return text;
}

std::string with_spaces(std::string_view piece) {
  std::string meta;
  append_utf8(meta, kMetaSpace);
  std::string text;
  for (std::size_t found; (found = piece.find(meta)) != piece.npos; piece.remove_prefix(found + meta.size()))
    text.append(piece.substr(0, found)) += ' ';
  return text.append(piece);
}

/// True when `bytes`, not well-formed, are the beginning of a character. Of what may follow its first byte,
/// the smallest or the largest continuation always may.
bool is_cut_character(std::string_view bytes) {
  for (const char continuation : {'\x80', '\xBF'}) {
    std::string whole(bytes);
    while (whole.size() < 4) {
      whole += continuation;
      if (is_valid_utf8(whole)) return true;
    }
  }
  return false;
}

}  // namespace

std::string TextStream::push_byte(std::uint8_t byte) {
  if (is_broken_) return replacements(1);
  run_ += static_cast<char>(byte);
  valid_bytes_ += valid_utf8_prefix(std::string_view(run_).substr(valid_bytes_));
  const std::string_view open = std::string_view(run_).substr(valid_bytes_);
  if (open.empty() || is_cut_character(open)) return run_.size() < kMaxRunBytes ? std::string() : finish();
  is_broken_ = true;
  valid_bytes_ = 0;
  return replacements(std::exchange(run_, {}).size());
}

std::string TextStream::push(std::int32_t id) {
  const std::string_view piece = tokenizer_.piece(id);
  if (piece.empty() || tokenizer_.is_special(id)) return {};
  if (const auto byte = tokenizer_.byte_of(id)) return push_byte(*byte);
  return finish() + with_spaces(piece);
}

std::string TextStream::finish() {
  is_broken_ = false;
  std::string run = std::exchange(run_, {});
  return std::exchange(valid_bytes_, 0) == run.size() ? run : replacements(run.size());
}

std::string decode(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  TextStream stream(tokenizer);
  std::string text;
  for (const std::int32_t id : ids)
    text += stream.push(id);
  return text += stream.finish();
}

}  // namespace gemmad
