// Drives a libFuzzer target where libFuzzer is not at hand: runs the corpus as it is, then seeded mutations
// of it until the time is over. Takes libFuzzer's own flags -max_total_time=SECONDS and -seed=N, then corpus
// folders.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;

constexpr std::size_t kMaxInputBytes = 64 * 1024;

std::vector<Input> read_corpus(const std::vector<std::string>& folders) {
  std::vector<Input> corpus{Input{}};
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream file(entry.path(), std::ios::binary);
      corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
  }
  return corpus;
}

void mutate_once(Input& input, const std::vector<Input>& corpus, std::mt19937_64& random) {
  const auto below = [&](std::size_t bound) { return bound == 0 ? 0 : random() % bound; };
  static constexpr std::uint8_t kTelling[] = {0,   1,   0x7f, 0x80, 0xff, '"', '{', '}',
                                              '[', ']', ':',  ',',  '\\', '-', '9'};
  switch (random() % 6) {
    case 0:
      if (!input.empty()) input[below(input.size())] ^= static_cast<std::uint8_t>(1u << below(8));
      break;
    case 1:
      input.insert(input.begin() + static_cast<std::ptrdiff_t>(below(input.size() + 1)),
                   kTelling[below(sizeof kTelling)]);
      break;
    case 2:
      if (!input.empty()) input[below(input.size())] = kTelling[below(sizeof kTelling)];
      break;
    case 3: {
      if (input.empty()) break;
      const std::size_t first = below(input.size());
      const std::size_t count = 1 + below(std::min<std::size_t>(input.size() - first, 32));
      input.erase(input.begin() + static_cast<std::ptrdiff_t>(first),
                  input.begin() + static_cast<std::ptrdiff_t>(first + count));
      break;
    }
    case 4: {
      const Input& other = corpus[below(corpus.size())];
      if (other.empty()) break;
      const std::size_t first = below(other.size());
      const std::size_t count = 1 + below(other.size() - first);
      input.insert(input.begin() + static_cast<std::ptrdiff_t>(below(input.size() + 1)),
                   other.begin() + static_cast<std::ptrdiff_t>(first),
                   other.begin() + static_cast<std::ptrdiff_t>(first + count));
      break;
    }
    default:
      input.resize(below(input.size() + 1));
  }
  if (input.size() > kMaxInputBytes) input.resize(kMaxInputBytes);
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 4;
  std::uint64_t seed = 1;
  std::vector<std::string> folders;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("-max_total_time=")) {
      seconds = std::stod(std::string(argument.substr(argument.find('=') + 1)));
    } else if (argument.starts_with("-seed=")) {
      seed = std::stoull(std::string(argument.substr(argument.find('=') + 1)));
    } else {
      folders.emplace_back(argument);
    }
  }
  const std::vector<Input> corpus = read_corpus(folders);
  std::printf("seed %llu, %zu inputs in the corpus, %.0f s\n", static_cast<unsigned long long>(seed),
              corpus.size(), seconds);
  for (const Input& input : corpus)
    LLVMFuzzerTestOneInput(input.data(), input.size());

  std::mt19937_64 random(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::size_t runs = corpus.size();
  while (std::chrono::steady_clock::now() < end) {
    Input input = corpus[random() % corpus.size()];
    for (std::size_t i = 1 + random() % 8; i > 0; --i)
      mutate_once(input, corpus, random);
    LLVMFuzzerTestOneInput(input.data(), input.size());
    ++runs;
  }
  std::printf("%zu runs without a finding\n", runs);
  return 0;
}
