#include "daemon/model/generation/sampling.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>

#include "kernels/base/float_formats.h"
#include "tests/support/catch.h"

using namespace gemmad;
using Ids = std::vector<std::int32_t>;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

ConstTensorView view(const std::vector<float>& row) {
  return {row.data(), DType::kF32, Shape{static_cast<std::int64_t>(row.size())}};
}
ConstTensorView view(const std::vector<std::uint16_t>& row) {
  return {row.data(), DType::kBF16, Shape{static_cast<std::int64_t>(row.size())}};
}

std::vector<std::uint16_t> as_bf16(const std::vector<float>& row) {
  std::vector<std::uint16_t> out;
  for (const float value : row)
    out.push_back(f32_to_bf16(value));
  return out;
}

/// Everything stays possible, at temperature 1.
SamplingParams plain() {
  SamplingParams params;
  params.temperature = 1;
  params.top_k = 0;
  return params;
}

SamplingParams greedy() {
  SamplingParams params;
  params.greedy = true;
  return params;
}

std::vector<float> random_row(std::size_t size, unsigned seed, float deviation = 4) {
  std::mt19937 random(seed);
  std::normal_distribution<float> values(0, deviation);
  std::vector<float> row(size);
  for (float& value : row)
    value = values(random);
  return row;
}

/// Logits of these probabilities at temperature 1.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> row;
  for (const double probability : probabilities)
    row.push_back(static_cast<float>(std::log(probability)));
  return row;
}

/// Ids with a probability above 0.
Ids possible(const std::vector<double>& distribution) {
  Ids ids;
  for (std::size_t i = 0; i < distribution.size(); ++i) {
    if (distribution[i] > 0) ids.push_back(static_cast<std::int32_t>(i));
  }
  return ids;
}

Ids possible(const std::vector<float>& row, const SamplingParams& params, const Ids& ids = {}) {
  return possible(TokenChooser().distribution(view(row), ids, params));
}

/// By definition: the ids that would make the last `n` of the sequence a run that was there before.
std::set<std::int32_t> forbidden_by_search(const Ids& ids, std::size_t n) {
  std::map<Ids, std::set<std::int32_t>> next;
  for (std::size_t i = 0; i + n <= ids.size(); ++i) {
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(i);
    next[Ids(begin, begin + static_cast<std::ptrdiff_t>(n) - 1)].insert(ids[i + n - 1]);
  }
  if (ids.size() + 1 < n) return {};
  return next[Ids(ids.end() - static_cast<std::ptrdiff_t>(n) + 1, ids.end())];
}

/// The whole procedure by its definition, slowly.
std::vector<double> expected_distribution(const std::vector<float>& row, const Ids& ids,
                                          const SamplingParams& params) {
  std::vector<double> scores(row.begin(), row.end());
  if (params.no_repeat_ngram > 0) {
    for (const std::int32_t id : forbidden_by_search(ids, static_cast<std::size_t>(params.no_repeat_ngram)))
      scores[static_cast<std::size_t>(id)] = -kInfinity;
  }
  for (double& score : scores)
    score /= params.temperature;
  if (params.top_k > 0 && params.top_k < static_cast<std::int64_t>(scores.size())) {
    std::vector<double> sorted = scores;
    std::sort(sorted.rbegin(), sorted.rend());
    const double least = sorted[static_cast<std::size_t>(params.top_k) - 1];
    for (double& score : scores)
      score = score < least ? -kInfinity : score;
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  std::vector<double> weights;
  for (const double score : scores)
    weights.push_back(std::exp(score - largest));
  const auto total_of = [&] { return std::accumulate(weights.begin(), weights.end(), 0.0); };
  double total = total_of();
  std::vector<std::size_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return scores[a] != scores[b] ? scores[a] < scores[b] : a > b;
  });
  double cumulative = 0;
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    cumulative += weights[order[i]] / total;
    if (cumulative > 1 - params.top_p) break;
    weights[order[i]] = 0;
  }
  total = total_of();
  for (double& weight : weights)
    weight /= total;
  return weights;
}

}  // namespace

TEST_CASE("The distribution is that of the four steps done slowly, one after the other") {
  std::mt19937 random(11);
  const auto one_of = [&](auto... values) {
    const double all[] = {static_cast<double>(values)...};
    return all[random() % sizeof...(values)];
  };
  for (unsigned trial = 0; trial < 300; ++trial) {
    SamplingParams params;
    params.temperature = one_of(0.1, 0.7, 1, 3);
    params.top_k = static_cast<std::int64_t>(one_of(0, 1, 5, 50, 400));
    params.top_p = one_of(0.1, 0.5, 0.9, 0.95, 1);
    params.no_repeat_ngram = static_cast<std::int64_t>(one_of(0, 1, 2, 3));
    const std::vector<float> row = random_row(300, trial, static_cast<float>(one_of(0.5, 4)));
    Ids ids(random() % 40);
    for (std::int32_t& id : ids)
      id = static_cast<std::int32_t>(random() % 6);
    CAPTURE(trial, params.temperature, params.top_k, params.top_p, params.no_repeat_ngram, ids.size());
    const std::vector<double> found = TokenChooser().distribution(view(row), ids, params);
    const std::vector<double> expected = expected_distribution(row, ids, params);
    CHECK(possible(found) == possible(expected));
    double error = 0;
    for (std::size_t i = 0; i < row.size(); ++i)
      error = std::max(error, std::abs(found[i] - expected[i]));
    // Doubles, a sum of 300: some hundred roundings of 1.1e-16.
    CHECK(error < 1e-13);
  }
}

TEST_CASE("The same seed and draw give the same token, whatever was chosen before") {
  const std::vector<float> row = random_row(1000, 1);
  SamplingParams params;
  TokenChooser used;
  for (std::uint64_t draw = 0; draw < 200; ++draw) {
    params.seed = draw % 7;
    const std::int32_t token = TokenChooser().choose(view(row), {}, params, draw);
    used.choose(view(random_row(333, 5)), Ids{1, 2, 1}, plain(), draw);
    CHECK(used.choose(view(row), {}, params, draw) == token);
  }
}

TEST_CASE("The random numbers are splitmix64's") {
  // Written out once more for seed 10: mix(10) is the first state, and each output mixes the next one.
  std::uint64_t state = 10;
  const auto mix = [](std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  };
  state = mix(state);
  for (std::uint64_t draw = 0; draw < 10; ++draw) {
    state += 0x9e3779b97f4a7c15;
    CHECK(uniform_draw(10, draw) == std::ldexp(static_cast<double>(mix(state) >> 11), -53));
  }
}

TEST_CASE(
    "Random numbers of neighbouring draws and of neighbouring seeds are even, in [0, 1) and not correlated") {
  // Of n independent pairs the correlation is about normal with deviation 1 / sqrt(n), the mean of uniform
  // numbers with sqrt(1 / 12 n); five deviations are 1 in 1.7 million.
  constexpr int kPairs = 100000;
  const auto check = [&](auto&& number) {
    double sum = 0;
    double product = 0;
    for (std::uint64_t i = 0; i < kPairs; ++i) {
      const double a = number(i);
      REQUIRE((a >= 0 && a < 1));
      sum += a;
      product += (a - 0.5) * (number(i + 1) - 0.5);
    }
    CHECK(std::abs(sum / kPairs - 0.5) < 5 * std::sqrt(1.0 / 12 / kPairs));
    CHECK(std::abs(product * 12 / kPairs) < 5 / std::sqrt(kPairs));
  };
  check([](std::uint64_t i) { return uniform_draw(42, i); });
  check([](std::uint64_t i) { return uniform_draw(i, 3); });
}

TEST_CASE("A token is the first, by falling probability, up to which the sum reaches the random number") {
  const std::vector<double> probabilities = {0.1, 0.4, 0.1, 0.4};
  const std::vector<float> row = logits_of(probabilities);
  const Ids order = {1, 3, 0, 2};
  const double ends[] = {0.4, 0.8, 0.9, 1.0};
  SamplingParams params = plain();
  for (params.seed = 0; params.seed < 500; ++params.seed) {
    const double number = uniform_draw(params.seed, 9);
    const auto place =
        std::find_if(std::begin(ends), std::end(ends), [&](double end) { return number <= end; });
    CHECK(TokenChooser().choose(view(row), {}, params, 9) ==
          order[static_cast<std::size_t>(place - std::begin(ends))]);
  }
}

TEST_CASE("The draw among very many agrees with a walk along all of them") {
  const std::vector<float> row = random_row(20000, 8, 1);
  TokenChooser chooser;
  const std::vector<double> distribution = chooser.distribution(view(row), {}, plain());
  Ids order = possible(distribution);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return is_before({row[static_cast<std::size_t>(a)], a}, {row[static_cast<std::size_t>(b)], b});
  });
  for (std::uint64_t draw = 0; draw < 300; ++draw) {
    const double number = uniform_draw(10, draw);
    double sum = 0;
    auto chosen = order.begin();
    while ((sum += distribution[static_cast<std::size_t>(*chosen)]) < number)
      ++chosen;
    CHECK(chooser.choose(view(row), {}, plain(), draw) == *chosen);
  }
}

TEST_CASE("Greedy takes the largest logit, of equal ones the smallest id, in both types") {
  std::vector<float> row = random_row(3000, 2);
  row[700] = row[1400] = row[2999] = 100;
  CHECK(TokenChooser().choose(view(row), {}, greedy(), 0) == 700);
  CHECK(TokenChooser().choose(view(as_bf16(row)), {}, greedy(), 0) == 700);
  CHECK(TokenChooser().choose(view(std::vector<float>(5, -3)), {}, greedy(), 0) == 0);
}

TEST_CASE("bf16 logits that tie with the k-th largest all stay") {
  const std::vector<float> row = {1.0f, 3.0f, 1.0f, 2.0f, 1.0f, 0.5f, 1.001f};  // the last is 1 in bf16
  SamplingParams params = plain();
  params.top_k = 3;
  CHECK(possible(TokenChooser().distribution(view(as_bf16(row)), {}, params)) == Ids{0, 1, 2, 3, 4, 6});
  CHECK(possible(row, params) == Ids{1, 3, 6});
}

TEST_CASE("top_p keeps as few as sum up to it, and always one") {
  const std::vector<float> row = logits_of({0.5, 0.25, 0.125, 0.125});
  const auto kept = [&](double top_p) {
    SamplingParams params = plain();
    params.top_p = top_p;
    return possible(row, params);
  };
  CHECK(kept(1e-9) == Ids{0});
  CHECK(kept(0.49) == Ids{0});
  CHECK(kept(0.51) == Ids{0, 1});
  CHECK(kept(0.74) == Ids{0, 1});
  CHECK(kept(0.76) == Ids{0, 1, 2});  // of two equal ones the smaller id
  CHECK(kept(0.88) == Ids{0, 1, 2, 3});
  CHECK(kept(1.0) == Ids{0, 1, 2, 3});
}

TEST_CASE("top_p counts among what temperature and top_k have left") {
  const std::vector<float> row = logits_of({0.4, 0.2, 0.2, 0.1, 0.1});
  SamplingParams params = plain();
  params.top_p = 0.6;
  CHECK(possible(row, params) == Ids{0, 1});
  params.top_k = 1;
  CHECK(possible(row, params) == Ids{0});
  params.top_k = 2;  // 2/3 and 1/3; ties with the second make it 1/2, 1/4, 1/4
  CHECK(possible(row, params) == Ids{0, 1});
  params.top_k = 0;
  params.temperature = 0.2;  // 0.4^5 of 0.4^5 + 2 * 0.2^5 + 2 * 0.1^5 is 0.94
  CHECK(possible(row, params) == Ids{0});
}

TEST_CASE("No run of n tokens comes twice, greedy or not") {
  // After 1 2 came 3 and 4; both are forbidden for n = 3, and 5 is the next best.
  const Ids ids = {1, 2, 3, 1, 2, 4, 9, 1, 2};
  std::vector<float> row(10, 0.0f);
  row[3] = 9;
  row[4] = 8;
  row[5] = 7;
  SamplingParams params = greedy();
  for (const auto& [n, token] :
       std::map<std::int64_t, std::int32_t>{{0, 3}, {1, 5}, {2, 5}, {3, 5}, {4, 3}, {99, 3}}) {
    CAPTURE(n);
    params.no_repeat_ngram = n;
    CHECK(TokenChooser().choose(view(row), ids, params, 0) == token);
    CHECK(TokenChooser().choose(view(as_bf16(row)), ids, params, 0) == token);
  }
}

TEST_CASE("Where every token is forbidden none is") {
  const Ids ids = {0, 1, 2, 3};
  SamplingParams params = plain();
  params.no_repeat_ngram = 1;
  CHECK(possible({1, 2, 3, 4}, params, ids) == ids);
  params.greedy = true;
  CHECK(TokenChooser().choose(view(std::vector<float>{1, 2, 3, 4}), ids, params, 0) == 3);
  CHECK(possible({1, 2, kNaN, 4, 5}, plain(), ids) == Ids{0, 1, 3, 4});
}

TEST_CASE("Ids beyond the logits forbid nothing") {
  SamplingParams params = plain();
  params.no_repeat_ngram = 1;
  CHECK(possible({1, 2, 3}, params, {-5, 1000000, 1}) == Ids{0, 2});
}

TEST_CASE("Hostile logits: huge, tiny and not finite ones give a distribution of the finite ones") {
  const float largest = std::numeric_limits<float>::max();
  CHECK(possible({kNaN, 1, kInfinity, -kInfinity, 1}, plain()) == Ids{1, 4});
  CHECK(possible({largest, -largest, largest}, plain()) == Ids{0, 2});
  CHECK(TokenChooser().choose(view(std::vector<float>{kNaN, -largest, kInfinity}), {}, greedy(), 0) == 1);
  SamplingParams cold = plain();
  cold.temperature = std::numeric_limits<double>::denorm_min();
  CHECK(possible({1, 2, 2}, cold) == Ids{1, 2});
  SamplingParams hot = plain();
  hot.temperature = std::numeric_limits<double>::max();
  for (const double probability :
       TokenChooser().distribution(view(std::vector<float>{-largest, largest}), {}, hot))
    CHECK(std::abs(probability - 0.5) < 1e-12);
}

TEST_CASE("Logits without a finite one, of another type or shape, and parameters out of range are refused") {
  TokenChooser chooser;
  const auto refuses = [&](ConstTensorView logits, const SamplingParams& params) {
    CHECK_THROWS_AS(chooser.choose(logits, {}, params, 0), std::invalid_argument);
    CHECK_THROWS_AS(chooser.distribution(logits, {}, params), std::invalid_argument);
  };
  const std::vector<float> none = {kNaN, kInfinity};
  const std::vector<float> row = {1, 2};
  refuses(view(none), plain());
  refuses(view(none), greedy());
  refuses({row.data(), DType::kU8, Shape{2}}, plain());
  refuses({row.data(), DType::kF32, Shape{1, 2}}, greedy());
  refuses({row.data(), DType::kF32, Shape{0}}, plain());
  for (const double temperature : {0.0, -1.0, std::nan(""), static_cast<double>(kInfinity)}) {
    SamplingParams params;
    params.temperature = temperature;
    refuses(view(row), params);
  }
  for (const double top_p : {0.0, -0.1, 1.1, std::nan("")}) {
    SamplingParams params;
    params.top_p = top_p;
    refuses(view(row), params);
  }
  SamplingParams params;
  params.top_k = -1;
  refuses(view(row), params);
  params = {};
  params.no_repeat_ngram = -1;
  refuses(view(row), params);
}

TEST_CASE("Gemma's vocabulary is gone through in far less time than a step of the model takes") {
  const std::vector<float> row = random_row(262208, 4);
  const std::vector<std::uint16_t> bf16 = as_bf16(row);
  TokenChooser chooser;
  const auto best_ms = [&](ConstTensorView logits, const SamplingParams& params) {
    double best = 1e9;
    for (std::uint64_t draw = 0; draw < 20; ++draw) {
      const auto start = std::chrono::steady_clock::now();
      chooser.choose(logits, {}, params, draw);
      best = std::min(
          best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
  };
  // Some 0.05 ms where nothing else runs and nothing instruments the code.
  for (const ConstTensorView logits : {view(row), view(bf16)}) {
    for (const SamplingParams& params : {SamplingParams{}, greedy()}) {
      const double ms = best_ms(logits, params);
      INFO(name(logits.dtype) << (params.greedy ? ", greedy: " : ", top_k 50: ") << ms << " ms");
      CHECK(ms < 5);
    }
  }
}
