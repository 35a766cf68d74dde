#include "daemon/model/text_encoder.h"

#include <cmath>
#include <stdexcept>

#include "tests/daemon/model/model_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

namespace gemmad {
namespace {

// Runs of the same prompt that differ in the shapes of their products: a few roundings a layer, as in
// golden_test.cpp.
constexpr double kLimit = 2e-5;

void check_same(ConstTensorView actual, ConstTensorView expected, double limit = kLimit) {
  const Comparison result = compare_rows(actual, expected, limit);
  INFO(result.report);
  CHECK(result.ok);
}

}  // namespace

TEST_CASE("A batch of prompts of every awkward length equals each prompt alone") {
  EncoderTesting testing(small_config(16));
  std::vector<std::vector<std::int32_t>> prompts;
  for (std::int64_t length : {1, 2, 15, 16, 17, 127, 1023, 1024}) {
    prompts.push_back(random_prompt(length, static_cast<std::uint64_t>(length)));
  }
  const PromptBatch batch = batch_of(prompts);
  const CollectingSink together = testing.encode(batch);
  for (std::size_t b = 0; b < prompts.size(); ++b) {
    CAPTURE(prompts[b].size());
    const CollectingSink alone = testing.encode(batch_of({prompts[b]}));
    const std::int64_t length = batch.offsets[b + 1] - batch.offsets[b];
    for (std::int64_t index = 0; index < alone.count(); ++index) {
      check_same(together.rows(index, batch.offsets[b], batch.offsets[b + 1]), alone.rows(index, 0, length));
    }
  }
}

TEST_CASE("The order of prompts in a batch does not matter") {
  EncoderTesting testing(small_config(16));
  const auto first = random_prompt(40, 1);
  const auto second = random_prompt(7, 2);
  const CollectingSink forth = testing.encode(batch_of({first, second}));
  const CollectingSink back = testing.encode(batch_of({second, first}));
  for (std::int64_t index = 0; index < forth.count(); ++index) {
    check_same(forth.rows(index, 0, 40), back.rows(index, 7, 47));
    check_same(forth.rows(index, 40, 47), back.rows(index, 0, 7));
  }
}

TEST_CASE("The same batch gives the same bytes every time") {
  EncoderTesting testing(small_config(16), kPaddedLength, 3);
  const PromptBatch batch = batch_of({random_prompt(300, 1), random_prompt(21, 2), random_prompt(1, 3)});
  const CollectingSink first = testing.encode(batch);
  for (int round = 0; round < 5; ++round) {
    const CollectingSink again = testing.encode(batch);
    for (std::int64_t index = 0; index < first.count(); ++index) {
      CHECK(compare_bits(again.rows(index, 0, 322), first.rows(index, 0, 322)).ok);
    }
  }
}

TEST_CASE("Later tokens do not change earlier rows") {
  // Positions are counted from the end, so the shorter prompt is padded to the length that keeps them.
  constexpr std::int64_t kLength = 70;
  const std::int64_t kept = GENERATE(1, 15, 16, 17, 69);
  CAPTURE(kept);
  EncoderTesting whole(small_config(16), 128);
  EncoderTesting cut(small_config(16), 128 - (kLength - kept));
  const auto prompt = random_prompt(kLength, 5);
  const CollectingSink of_whole = whole.encode(batch_of({prompt}));
  const CollectingSink of_cut = cut.encode(batch_of({{prompt.begin(), prompt.begin() + kept}}));
  for (std::int64_t index = 0; index < of_whole.count(); ++index) {
    check_same(of_cut.rows(index, 0, kept), of_whole.rows(index, 0, kept));
  }
}

TEST_CASE("A window as long as the prompt changes nothing, one shorter by one does") {
  constexpr std::int64_t kLength = 33;
  const auto prompt = random_prompt(kLength, 6);
  const auto encode = [&](std::int64_t window) {
    return EncoderTesting(small_config(window)).encode(batch_of({prompt}));
  };
  const CollectingSink wide = encode(1000);
  const CollectingSink exact = encode(kLength);
  const CollectingSink narrow = encode(kLength - 1);
  CHECK(compare_bits(exact.rows(1, 0, kLength), wide.rows(1, 0, kLength)).ok);
  // The first layer slides: only the last row has a key that the narrow window hides.
  CHECK(compare_bits(narrow.rows(1, 0, kLength - 1), wide.rows(1, 0, kLength - 1)).ok);
  CHECK_FALSE(
      compare_rows(narrow.rows(1, kLength - 1, kLength), wide.rows(1, kLength - 1, kLength), 1e-4).ok);
}

TEST_CASE("A token reaches the rows after it, through the layers beyond its window") {
  EncoderTesting testing(small_config(4));
  auto prompt = random_prompt(30, 7);
  const CollectingSink before = testing.encode(batch_of({prompt}));
  prompt[10] = (prompt[10] + 1) % 512;
  const CollectingSink after = testing.encode(batch_of({prompt}));
  const auto row_changed = [&](std::int64_t index, std::int64_t row) {
    return !compare_bits(after.rows(index, row, row + 1), before.rows(index, row, row + 1)).ok;
  };
  CHECK_FALSE(row_changed(1, 9));
  for (std::int64_t row = 10; row < 14; ++row)
    CHECK(row_changed(1, row));
  CHECK_FALSE(row_changed(1, 14));  // four keys, its own included
  CHECK(row_changed(2, 29));        // a full layer
  CHECK_FALSE(row_changed(3, 9));
}

TEST_CASE("The last hidden state is normed") {
  EncoderTesting testing(model_folder("gemma3-tiny"));
  const ConstTensorView norm = testing.encoder().weights().final_norm;
  const CollectingSink sink = testing.encode(batch_of({random_prompt(9, 8)}));
  const ConstTensorView last = sink.rows(sink.count() - 1, 0, 9);
  for (std::int64_t row = 0; row < 9; ++row) {
    double sum = 0;
    for (std::int64_t i = 0; i < last.shape[1]; ++i) {
      const double value = last.as<float>()[row * last.shape[1] + i] / (1.0 + norm.as<float>()[i]);
      sum += value * value;
    }
    CHECK(std::abs(std::sqrt(sum / static_cast<double>(last.shape[1])) - 1) < 1e-4);
  }
}

TEST_CASE("Bad batches are refused and leave the encoder usable") {
  EncoderTesting testing(small_config(16), 100);
  const auto refused = [&](const std::vector<std::int32_t>& ids, const std::vector<std::int64_t>& offsets) {
    PromptBatch batch;
    batch.ids = ids;
    batch.offsets = offsets;
    try {
      testing.encode(batch);
    } catch (const BatchError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  constexpr std::int64_t kHuge = INT64_MAX;
  const std::vector<std::int32_t> three = {2, 5, 6};
  CHECK(refused({}, {0}) != "accepted");
  CHECK(refused({}, {}) != "accepted");
  CHECK(refused({}, {0, 0}) != "accepted");
  CHECK(refused(three, {0, 0, 3}).find("prompt 0 is empty") != std::string::npos);
  CHECK(refused(three, {0, 2}) != "accepted");
  CHECK(refused(three, {0, 4}) != "accepted");
  CHECK(refused(three, {1, 3}) != "accepted");
  CHECK(refused(three, {0, 2, 1, 3}) != "accepted");
  CHECK(refused(three, {0, kHuge, 3}) != "accepted");
  CHECK(refused(three, {0, -kHuge, 3}) != "accepted");
  CHECK(refused({2, -1, 3}, {0, 3}).find("id -1") != std::string::npos);
  CHECK(refused({2, 512, 3}, {0, 3}).find("id 512") != std::string::npos);
  CHECK(refused(random_prompt(101, 1), {0, 101}).find("101 tokens, the limit is 100") != std::string::npos);
  PromptBatch too_many;
  for (int i = 0; i < 31; ++i)
    too_many.add(random_prompt(100, 1));
  CHECK(refused(too_many.ids, too_many.offsets).find("3100 tokens, the limit is 3000") != std::string::npos);
  CHECK(refused(three, {0, 3}) == "accepted");
  CHECK(refused(random_prompt(100, 1), {0, 100}) == "accepted");
}

TEST_CASE("A sink that throws ends the pass and leaves the encoder usable") {
  class ThrowingSink final : public HiddenStateSink {
   public:
    void hidden_state(std::int64_t index, ConstTensorView, const Moment&, bool) override {
      if (index == 2) throw std::runtime_error("enough");
    }
  };
  EncoderTesting testing(small_config(16));
  const PromptBatch batch = batch_of({random_prompt(20, 1)});
  const CollectingSink before = testing.encode(batch);
  ThrowingSink sink;
  NoLinks links;
  CHECK_THROWS_AS(testing.encoder().forward(batch.packed(), links, sink), std::runtime_error);
  const CollectingSink after = testing.encode(batch);
  for (std::int64_t index = 0; index < before.count(); ++index) {
    CHECK(compare_bits(after.rows(index, 0, 20), before.rows(index, 0, 20)).ok);
  }
}

TEST_CASE("The workspace has room for the residual stream and the wider block, and no more than both") {
  const EncoderTesting testing(small_config(16));
  // Four rows of D, then attention's (H + 2K) S + H S or the feed-forward's 2F + F, whichever is wider: here
  // 384 against 240; ids, positions, begins and two tables of 1024 positions; each part is rounded up to 256
  // bytes.
  constexpr std::uint64_t kExact = 3000 * 4 * (4 * 48 + 384 + 3) + 2 * 1024 * 32 * 4;
  CHECK(testing.workspace().size_bytes() >= kExact);
  CHECK(testing.workspace().size_bytes() < kExact + 9 * 256);
  CHECK(testing.workspace().max_batch_tokens() == 3000);
}

}  // namespace gemmad
