// Times loading a tokenizer and encoding texts, for scripts/bench_tokenizer.py. One thread.
// tokenizer_bench TOKENIZER.json TEXTS.json: TEXTS is {"workload": ["text", ...], ...}. Prints one JSON
// object:
// {"load_s": s, "workloads": {"workload": {"first_s": s, "again_s": s, "tokens": n, "hash": h}, ...}}, where
// first_s is the first pass over a workload, again_s the median of five more, and hash is FNV-1a over the ids
// (as decimal text).

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "daemon/tokenizer/tokenizer.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double encode_all(const gemmad::Tokenizer& tokenizer, const std::vector<std::string>& texts,
                  std::size_t& num_tokens) {
  const auto start = Clock::now();
  num_tokens = 0;
  for (const std::string& text : texts)
    num_tokens += tokenizer.encode(text).size();
  return seconds_since(start);
}

std::string hash_of_ids(const gemmad::Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::string& text : texts) {
    for (const std::int32_t id : tokenizer.encode(text)) {
      hash = (hash ^ static_cast<std::uint64_t>(id)) * 0x100000001b3u;
    }
  }
  return std::to_string(hash);
}

nlohmann::json measure(const gemmad::Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  std::size_t num_tokens = 0;
  const double first = encode_all(tokenizer, texts, num_tokens);
  std::vector<double> again(5);
  for (double& seconds : again)
    seconds = encode_all(tokenizer, texts, num_tokens);
  std::sort(again.begin(), again.end());
  return {{"first_s", first},
          {"again_s", again[again.size() / 2]},
          {"tokens", num_tokens},
          {"hash", hash_of_ids(tokenizer, texts)}};
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: tokenizer_bench TOKENIZER.json TEXTS.json\n");
    return 2;
  }
  std::ifstream texts_file(argv[2]);
  const auto workloads = nlohmann::json::parse(texts_file);
  const auto start = Clock::now();
  const auto tokenizer = gemmad::Tokenizer::load(argv[1]);
  nlohmann::json out{{"load_s", seconds_since(start)}, {"workloads", nlohmann::json::object()}};
  for (const auto& item : workloads.items()) {
    out["workloads"][item.key()] = measure(tokenizer, item.value().get<std::vector<std::string>>());
  }
  std::printf("%s\n", out.dump().c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "tokenizer_bench: %s\n", error.what());
  return 1;
}
