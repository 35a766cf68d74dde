#include "daemon/tokenizer/tokenizer_file.h"

#include <fstream>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "daemon/tokenizer/bpe.h"
#include "daemon/tokenizer/tokenizer_error.h"
#include "daemon/tokenizer/tokenizer_json.h"
#include "daemon/tokenizer/tokenizer_parts.h"

namespace gemmad {
namespace {

/// Things that get saved under the name of a model file by mistake, and files cut short.
void refuse_impostors(std::string_view bytes, const std::string& source_name) {
  if (bytes.empty()) throw TokenizerError(source_name + ": is empty (0 bytes); fetch the file again");
  if (bytes.starts_with("version https://git-lfs")) {
    throw TokenizerError(source_name +
                         ": is a Git LFS pointer, not the file itself; fetch the file with git lfs pull");
  }
  const std::size_t start = bytes.find_first_not_of(" \t\r\n");
  if (start != std::string_view::npos && bytes[start] == '<') {
    throw TokenizerError(source_name +
                         ": is an HTML or XML page, not JSON; the download was answered by a web page");
  }
  // Looked at first because a number cut in half would be blamed for what it has become.
  const std::size_t end = bytes.find_last_not_of(" \t\r\n");
  if (start != std::string_view::npos && bytes[start] == '{' && bytes[end] != '}') {
    throw TokenizerError(source_name + ": ends after " + std::to_string(bytes.size()) +
                         " bytes in the middle of its JSON; it is truncated, fetch the file again");
  }
}

void require_byte_pieces(const Vocabulary& vocabulary, const std::string& source_name) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string piece = byte_piece(static_cast<std::uint8_t>(byte));
    if (vocabulary.find(piece) < 0) {
      refuse(source_name, "model.vocab",
             "lacks " + quote(piece) + "; byte fallback needs all 256 byte pieces");
    }
  }
}

void resolve_merges(const MergeTexts& texts, const std::string& source_name, TokenizerFile& file) {
  const Vocabulary& vocabulary = file.vocabulary;
  file.merges.reserve(texts.size());
  file.pairs = PairTable(texts.size());
  std::string joined;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    joined.assign(texts.left(rank)).append(texts.right(rank));
    const Merge merge{vocabulary.find(texts.left(rank)), vocabulary.find(texts.right(rank)),
                      vocabulary.find(joined)};
    if (merge.left < 0 || merge.right < 0 || merge.result < 0) {
      const std::string_view missing = merge.left < 0    ? texts.left(rank)
                                       : merge.right < 0 ? texts.right(rank)
                                                         : std::string_view(joined);
      refuse(source_name, "model.merges[" + std::to_string(rank) + "]",
             "needs the piece " + quote(missing) + ", which model.vocab lacks");
    }
    const std::uint32_t earlier = file.pairs.add(merge);
    if (earlier != PairTable::kNoRank) {
      refuse(source_name, "model.merges[" + std::to_string(rank) + "]",
             "repeats model.merges[" + std::to_string(earlier) + "]");
    }
    file.merges.push_back(merge);
  }
}

/// An added token is a piece of the model with its id, or new in both.
void check_added_tokens(const std::vector<AddedToken>& tokens, const Vocabulary& vocabulary,
                        const std::string& source_name) {
  Vocabulary seen;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const AddedToken& token = tokens[i];
    const auto fail = [&](const std::string& reason) {
      refuse(source_name, "added_tokens[" + std::to_string(i) + "]",
             quote(token.content) + " with id " + std::to_string(token.id) + " " + reason);
    };
    const std::int32_t id_in_model = vocabulary.find(token.content);
    const std::string_view piece_in_model = vocabulary.piece(token.id);
    if (id_in_model >= 0 && id_in_model != token.id)
      fail("has id " + std::to_string(id_in_model) + " in model.vocab");
    if (id_in_model < 0 && !piece_in_model.empty()) fail("takes the id of " + quote(piece_in_model));
    if (seen.add(token.content, token.id) != Vocabulary::Added::kDone)
      fail("repeats the text or the id of another");
  }
}

/// The token's id, wherever it is named; -1 when nowhere.
std::int32_t find_token(const TokenizerFile& file, std::string_view text) {
  for (const AddedToken& token : file.added_tokens) {
    if (token.content == text) return token.id;
  }
  return file.vocabulary.find(text);
}

void read_bos(const TokenizerJson& json, const std::string& source_name, TokenizerFile& file) {
  const LeadingToken leading = read_post_processor(json.root, source_name);
  file.adds_bos = !leading.name.empty();
  const std::string name = file.adds_bos ? leading.name : "<bos>";
  file.bos_id = find_token(file, name);
  if (file.bos_id < 0)
    refuse(source_name, "model.vocab", "lacks the token " + quote(name) + " that starts a text");
  if (file.adds_bos && leading.id != file.bos_id) {
    refuse(source_name, "post_processor",
           "gives " + quote(name) + " the id " + std::to_string(leading.id) + ", the vocabulary gives it " +
               std::to_string(file.bos_id));
  }
}

}  // namespace

std::string read_tokenizer_bytes(const std::filesystem::path& path) {
  const std::string name = path.string();
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw TokenizerError(name + ": there is no such file");
  if (!std::filesystem::is_regular_file(status)) throw TokenizerError(name + ": is not a regular file");
  const auto size_bytes = std::filesystem::file_size(path, error);
  if (error) throw TokenizerError(name + ": cannot be read: " + error.message());
  if (size_bytes > kMaxTokenizerFileBytes) {
    throw TokenizerError(name + ": is " + std::to_string(size_bytes) + " bytes long, above the limit of " +
                         std::to_string(kMaxTokenizerFileBytes));
  }
  std::string bytes(size_bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file) throw TokenizerError(name + ": cannot be opened; check its permissions");
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (static_cast<std::size_t>(file.gcount()) != bytes.size()) {
    throw TokenizerError(name + ": gave " + std::to_string(file.gcount()) + " of " +
                         std::to_string(bytes.size()) + " bytes");
  }
  return bytes;
}

TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& source_name) {
  if (text.size() > kMaxTokenizerFileBytes) {
    throw TokenizerError(source_name + ": is " + std::to_string(text.size()) +
                         " bytes long, above the limit of " + std::to_string(kMaxTokenizerFileBytes));
  }
  refuse_impostors(text, source_name);
  TokenizerJson json = parse_tokenizer_json(text, source_name);

  TokenizerFile file;
  check_model_settings(json.model, source_name);
  file.vocabulary = std::move(json.vocabulary);
  require_byte_pieces(file.vocabulary, source_name);
  resolve_merges(json.merges, source_name, file);
  file.added_tokens = std::move(json.added_tokens);
  check_added_tokens(file.added_tokens, file.vocabulary, source_name);
  file.spaces_to_meta = read_normalizer(json.root, source_name);
  read_bos(json, source_name, file);
  return file;
}

}  // namespace gemmad
