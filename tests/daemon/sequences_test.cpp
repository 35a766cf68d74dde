#include "daemon/sequences.h"

#include <numeric>
#include <stdexcept>
#include <string>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

SequenceStart start_of(JobId id, std::size_t length) {
  SequenceStart start;
  start.id = id;
  start.ids.resize(length);
  std::iota(start.ids.begin(), start.ids.end(), 2);
  return start;
}

SequenceStart start_with_image(JobId id, std::size_t length, std::int64_t first_row) {
  SequenceStart start = start_of(id, length);
  start.image = PromptImage{first_row, {}};
  return start;
}

/// What happens until the first sequence is ready: "look", "0-16", "decode".
std::string passes(Sequences& sequences, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    const Pass pass = sequences.next_pass();
    if (!text.empty()) text += " ";
    switch (pass.kind) {
      case Pass::Kind::kNone:
        text += "none";
        break;
      case Pass::Kind::kLook:
        text += "look";
        sequences.hear({pass.sequences.front()->start.id, SequenceNews::Kind::kLooked, 0});
        break;
      case Pass::Kind::kPrefill:
        text += std::to_string(pass.begin) + "-" + std::to_string(pass.end);
        sequences.prefilled(pass);
        break;
      case Pass::Kind::kDecode: {
        text += "decode";
        std::vector<JobId> ids;
        for (const Sequence* sequence : pass.sequences)
          ids.push_back(sequence->start.id);
        for (const JobId id : ids) {
          text += ":" + std::to_string(id);
          sequences.hear({id, SequenceNews::Kind::kToken, 7});
        }
      }
    }
  }
  return text;
}

TEST_CASE("A prompt comes in chunks, all but its last token, which is decoded") {
  Sequences sequences(1, 16, 0);
  sequences.begin(start_of(1, 40));
  CHECK(passes(sequences, 5) == "0-16 16-32 32-39 decode:1 decode:1");
}

TEST_CASE("A prompt of one token is decoded at once") {
  Sequences sequences(1, 16, 0);
  sequences.begin(start_of(1, 1));
  CHECK(passes(sequences, 2) == "decode:1 decode:1");
}

TEST_CASE("Without a sequence there is nothing to do") {
  Sequences sequences(1, 16, 0);
  CHECK(passes(sequences, 1) == "none");
}

TEST_CASE("An image is looked at before its prompt, and its tokens come in one chunk") {
  // Chunks of 16; an image of 20 tokens from row 10.
  Sequences sequences(1, 16, 20);
  sequences.begin(start_with_image(1, 60, 10));
  CHECK(passes(sequences, 5) == "look 0-10 10-38 38-54 54-59");
}

TEST_CASE("A chunk that is longer than the image goes on behind it") {
  Sequences sequences(1, 16, 4);
  sequences.begin(start_with_image(1, 40, 10));
  CHECK(passes(sequences, 4) == "look 0-10 10-26 26-39");
}

TEST_CASE("A few tokens before an image come with it") {
  Sequences sequences(1, 16, 20);
  sequences.begin(start_with_image(1, 80, 24));
  CHECK(passes(sequences, 4) == "look 0-16 16-52 52-68");
}

TEST_CASE("Tokens of an image see all of it, others themselves and what is before") {
  Sequences sequences(1, 16, 4);
  sequences.begin(start_with_image(1, 40, 10));
  const Sequence& sequence = *sequences.next_pass().sequences.front();
  CHECK(sequence.first_unseen(9) == 10);
  CHECK(sequence.first_unseen(10) == 14);
  CHECK(sequence.first_unseen(13) == 14);
  CHECK(sequence.first_unseen(14) == 15);
}

TEST_CASE("Sequences that run and one that begins take turns") {
  Sequences sequences(2, 16, 0);
  sequences.begin(start_of(1, 2));
  CHECK(passes(sequences, 2) == "0-1 decode:1");
  sequences.begin(start_of(2, 40));
  CHECK(passes(sequences, 7) == "0-16 decode:1 16-32 decode:1 32-39 decode:1:2 decode:1:2");
}

TEST_CASE("The older of two prompts comes first") {
  Sequences sequences(2, 16, 0);
  sequences.begin(start_of(1, 20));
  sequences.begin(start_of(2, 10));
  CHECK(passes(sequences, 5) == "0-16 16-19 decode:1 0-9 decode:1:2");
}

TEST_CASE("A slot is free again when its sequence ends or fails") {
  Sequences sequences(1, 16, 0);
  sequences.begin(start_of(1, 4));
  CHECK_THROWS_AS(sequences.begin(start_of(2, 4)), std::logic_error);
  sequences.end(1);
  sequences.begin(start_of(2, 4));
  sequences.hear({2, SequenceNews::Kind::kFailed, 0});
  CHECK(sequences.empty());
  sequences.begin(start_of(3, 4));
  CHECK(sequences.next_pass().sequences.front()->slot == 0);
}

TEST_CASE("Tokens that were generated before count as prompt for the cache and as generated for the draw") {
  Sequences sequences(1, 16, 0);
  SequenceStart start = start_of(1, 10);
  start.num_generated = 6;
  sequences.begin(start);
  CHECK(passes(sequences, 2) == "0-9 decode:1");
  CHECK(sequences.next_pass().sequences.front()->start.num_generated == 7);
}

TEST_CASE("News of sequences that this replica does not have are passed over") {
  Sequences sequences(1, 16, 0);
  sequences.hear({9, SequenceNews::Kind::kToken, 7});
  sequences.end(9);
  CHECK(sequences.empty());
}

}  // namespace
}  // namespace gemmad
