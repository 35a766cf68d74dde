#include "daemon/tokenizer/tokenizer.h"

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

}  // namespace

struct Tokenizer::Parts {
  explicit Parts(TokenizerFile file)
      : adds_bos(file.adds_bos),
        bos_id(file.bos_id),
        bpe(file.vocabulary, file.merges, std::move(file.pairs), file.spaces_to_meta),
        vocabulary(with_added_tokens(std::move(file.vocabulary), file.added_tokens)),
        added_tokens(std::move(file.added_tokens)) {}

  bool adds_bos;
  std::int32_t bos_id;
  Bpe bpe;
  Vocabulary vocabulary;  // every id has its piece here
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

}  // namespace gemmad
