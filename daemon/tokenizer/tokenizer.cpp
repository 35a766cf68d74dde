#include "daemon/tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "daemon/tokenizer/added_tokens.h"
#include "daemon/tokenizer/bpe.h"
#include "daemon/tokenizer/tokenizer_file.h"
#include "daemon/tokenizer/utf8.h"
#include "daemon/tokenizer/vocabulary.h"

namespace gemmad {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

void check_text(std::string_view utf8) {
  if (utf8.size() > kMaxTextBytes) {
    throw TokenizerError("text of " + std::to_string(utf8.size()) + " bytes is above the limit of " +
                         std::to_string(kMaxTextBytes));
  }
  const std::size_t valid = valid_utf8_prefix(utf8);
  if (valid != utf8.size()) {
    throw TokenizerError("text of " + std::to_string(utf8.size()) + " bytes is not valid UTF-8 at byte " +
                         std::to_string(valid));
  }
}

Vocabulary with_added_tokens(Vocabulary vocabulary, const std::vector<AddedToken>& tokens) {
  for (const AddedToken& token : tokens)
    vocabulary.add(token.content, token.id);
  return vocabulary;
}

/// Sorted.
std::vector<std::int32_t> special_ids(const std::vector<AddedToken>& tokens) {
  std::vector<std::int32_t> ids;
  for (const AddedToken& token : tokens) {
    if (token.special) ids.push_back(token.id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

/// Sorted by id.
std::vector<std::pair<std::int32_t, std::uint8_t>> byte_ids(const Vocabulary& vocabulary) {
  std::vector<std::pair<std::int32_t, std::uint8_t>> ids;
  for (int byte = 0; byte < 256; ++byte) {
    const auto value = static_cast<std::uint8_t>(byte);
    ids.emplace_back(vocabulary.find(byte_piece(value)), value);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

struct Tokenizer::Parts {
  explicit Parts(TokenizerFile file)
      : adds_bos(file.adds_bos),
        bos_id(file.bos_id),
        bpe(file.vocabulary, file.merges, std::move(file.pairs), file.spaces_to_meta),
        vocabulary(with_added_tokens(std::move(file.vocabulary), file.added_tokens)),
        specials(special_ids(file.added_tokens)),
        bytes(byte_ids(vocabulary)),
        added_tokens(std::move(file.added_tokens)) {}

  bool adds_bos;
  std::int32_t bos_id;
  Bpe bpe;
  Vocabulary vocabulary;  // every id has its piece here
  std::vector<std::int32_t> specials;
  std::vector<std::pair<std::int32_t, std::uint8_t>> bytes;
  AddedTokenMatcher added_tokens;
};

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  return parse(read_tokenizer_bytes(tokenizer_json), tokenizer_json.string());
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& source_name) {
  return Tokenizer(std::make_unique<const Parts>(parse_tokenizer_file(json, source_name)));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view utf8) const {
  check_text(utf8);
  std::vector<std::int32_t> ids;
  ids.reserve(utf8.size() / 3 + 2);
  if (parts_->adds_bos) ids.push_back(parts_->bos_id);
  Bpe::Scratch scratch;
  std::size_t position = 0;
  while (position < utf8.size()) {
    const auto match = parts_->added_tokens.find(utf8, position);
    const std::size_t end = match ? match->begin : utf8.size();
    parts_->bpe.encode(utf8.substr(position, end - position), scratch, ids);
    if (!match) break;
    ids.push_back(match->id);
    position = match->end;
  }
  return ids;
}

std::int32_t Tokenizer::bos_id() const {
  return parts_->bos_id;
}

std::size_t Tokenizer::vocab_size() const {
  return static_cast<std::size_t>(parts_->vocabulary.end_id());
}

std::string_view Tokenizer::piece(std::int32_t id) const {
  return parts_->vocabulary.piece(id);
}

std::int32_t Tokenizer::find(std::string_view piece) const {
  return parts_->vocabulary.find(piece);
}

bool Tokenizer::is_special(std::int32_t id) const {
  return std::binary_search(parts_->specials.begin(), parts_->specials.end(), id);
}

std::optional<std::uint8_t> Tokenizer::byte_of(std::int32_t id) const {
  const auto found =
      std::lower_bound(parts_->bytes.begin(), parts_->bytes.end(), std::pair(id, std::uint8_t{0}));
  if (found == parts_->bytes.end() || found->first != id) return std::nullopt;
  return found->second;
}

}  // namespace gemmad
