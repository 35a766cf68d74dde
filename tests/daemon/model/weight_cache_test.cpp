#include "daemon/model/weight_cache.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/daemon/model/model_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/tensor_file.h"

namespace gemmad {
namespace {

/// A cache filled in `num_parts` by as many holders; the bytes that each read.
struct Filled {
  WeightCache cache;
  std::vector<std::uint64_t> read_bytes;
};

Filled fill_in_parts(const Checkpoint& checkpoint, int num_parts) {
  Filled filled{WeightCache::create(checkpoint), {}};
  for (int part = 0; part < num_parts; ++part) {
    WeightCache holder = WeightCache::attach(checkpoint, filled.cache.address());
    filled.read_bytes.push_back(holder.fill(checkpoint, part, num_parts, {}));
  }
  filled.cache.seal();
  return filled;
}

/// How a forked child that runs `body` ends: its status if it leaves, minus the signal if one kills it.
template <typename Body>
int end_of_child(const Body& body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);
    body();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("A cache filled in any number of parts holds the checkpoint, bit for bit, read once") {
  const std::string model = GENERATE("gemma3-tiny", "gemma3-text-tiny");
  const int num_parts = GENERATE(1, 2, 3, 7);
  CAPTURE(model, num_parts);
  const ModelFiles files = open_model(model_folder(model));
  const Checkpoint& checkpoint = *files.checkpoint();
  const Filled filled = fill_in_parts(checkpoint, num_parts);

  for (const auto& [name, tensor] : checkpoint.tensors()) {
    CAPTURE(name);
    CHECK(compare_bits(filled.cache.tensor(name).view, tensor.view).ok);
  }
  std::uint64_t total_bytes = 0;
  for (const std::uint64_t bytes : filled.read_bytes)
    total_bytes += bytes;
  CHECK(total_bytes == checkpoint.size_bytes());
  CHECK(filled.cache.size_bytes() == checkpoint.size_bytes());
}

TEST_CASE("Parts of a cache are of about the same size") {
  const ModelFiles files = open_model(model_folder("gemma3-tiny"));
  const Checkpoint& checkpoint = *files.checkpoint();
  const std::uint64_t mean = checkpoint.size_bytes() / 7;
  // A part ends at a page; between two tensors lie less than 256 bytes, and a part holds under 20 of them.
  constexpr std::uint64_t kSlack = 2 * 4096 + 20 * 256;
  for (const std::uint64_t bytes : fill_in_parts(checkpoint, 7).read_bytes) {
    CHECK(bytes + kSlack > mean);
    CHECK(bytes < mean + kSlack);
  }
}

TEST_CASE("A cache needs its files no more once it is filled") {
  const ScratchFolder folder;
  for (const char* file : {"config.json", "tokenizer.json", "model.safetensors"})
    std::filesystem::copy(model_folder("gemma3-tiny") / file, folder.path());
  std::optional<ModelFiles> files(open_model(folder.path()));
  const Filled filled = fill_in_parts(*files->checkpoint(), 2);
  files.reset();
  std::filesystem::resize_file(folder.path() / "model.safetensors", 0);
  const ModelFiles whole = open_model(model_folder("gemma3-tiny"));
  const char* name = "layers.7.mlp.down_proj.weight";
  CHECK(compare_bits(filled.cache.tensor(name).view, whole.checkpoint()->tensor(name).view).ok);
}

TEST_CASE("Progress counts the bytes of all parts together and ends at the total") {
  const ModelFiles files = open_model(model_folder("gemma3-text-tiny"));
  const Checkpoint& checkpoint = *files.checkpoint();
  WeightCache first = WeightCache::create(checkpoint);
  WeightCache second = WeightCache::attach(checkpoint, first.address());
  std::uint64_t last_bytes = 0;
  bool rising = true;
  const auto progress = [&](std::uint64_t done_bytes, std::uint64_t total_bytes) {
    rising = rising && done_bytes > last_bytes && total_bytes == checkpoint.size_bytes();
    last_bytes = done_bytes;
  };
  first.fill(checkpoint, 0, 2, progress);
  second.fill(checkpoint, 1, 2, progress);
  CHECK(rising);
  CHECK(last_bytes == checkpoint.size_bytes());
}

TEST_CASE("Progress may end the filling") {
  const ModelFiles files = open_model(model_folder("gemma3-text-tiny"));
  WeightCache cache = WeightCache::create(*files.checkpoint());
  CHECK_THROWS_AS(cache.fill(*files.checkpoint(), 0, 1,
                             [](std::uint64_t, std::uint64_t) { throw std::runtime_error("stop"); }),
                  std::runtime_error);
}

TEST_CASE("A file that is cut short after it was opened is an error that names it, not a signal") {
  const ScratchFolder folder;
  for (const char* file : {"config.json", "tokenizer.json", "model.safetensors"})
    std::filesystem::copy(model_folder("gemma3-tiny") / file, folder.path());
  const std::filesystem::path weights = folder.path() / "model.safetensors";
  const ModelFiles files = open_model(folder.path());
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) / 2);
  WeightCache cache = WeightCache::create(*files.checkpoint());
  std::string message = "filled";
  try {
    cache.fill(*files.checkpoint(), 0, 1, {});
  } catch (const ModelFileError& error) {
    message = error.what();
  }
  CHECK(message.find(weights.string()) != std::string::npos);
  CHECK(message.find("cut short") != std::string::npos);
}

TEST_CASE("A sealed cache cannot be written through its own mapping") {
  const ModelFiles files = open_model(model_folder("gemma3-tiny"));
  const Filled filled = fill_in_parts(*files.checkpoint(), 1);
  const HostTensor norm = filled.cache.tensor("norm.weight");
  auto* const byte = static_cast<volatile std::byte*>(const_cast<void*>(norm.view.data));
  CHECK(end_of_child([&] { static_cast<void>(*byte); }) == 0);
  // A sanitizer that reports the fault itself leaves with a status of its own: anything but 0.
  CHECK(end_of_child([&] { *byte = std::byte{1}; }) != 0);
}

TEST_CASE("The cache of another model is refused with both sizes") {
  const ModelFiles one = open_model(model_folder("gemma3-tiny"));
  const ModelFiles other = open_model(model_folder("gemma3-text-tiny"));
  const WeightCache cache = WeightCache::create(*one.checkpoint());
  std::string message = "attached";
  try {
    WeightCache::attach(*other.checkpoint(), cache.address());
  } catch (const ModelFileError& error) {
    message = error.what();
  }
  CHECK(message.find("different models") != std::string::npos);
  CHECK(message.find(std::to_string(cache.address().size_bytes)) != std::string::npos);
}

TEST_CASE("A tensor outlives its cache, and its bytes stay when it is let go") {
  const ModelFiles files = open_model(model_folder("gemma3-tiny"));
  HostTensor table;
  {
    const Filled filled = fill_in_parts(*files.checkpoint(), 2);
    table = filled.cache.tensor("embed_tokens.weight");
    filled.cache.release(table);
  }
  CHECK(compare_bits(table.view, files.checkpoint()->tensor("embed_tokens.weight").view).ok);
}

TEST_CASE("A name that the cache has not is refused") {
  const ModelFiles files = open_model(model_folder("gemma3-tiny"));
  const WeightCache cache = WeightCache::create(*files.checkpoint());
  CHECK_THROWS_AS(cache.tensor("layers.8.mlp.up_proj.weight"), ModelFileError);
}

TEST_CASE("A model loaded from the cache has the same weights as one from the files") {
  const ModelFiles files = open_model(model_folder("gemma3-text-tiny"));
  const Filled filled = fill_in_parts(*files.checkpoint(), 3);
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  const Shard shard = whole_model(files.config(), 0);
  const TextWeights a = load_text_weights(*files.checkpoint(), files.config(), shard, *ops, {});
  const TextWeights b = load_text_weights(filled.cache, files.config(), shard, *ops, {});
  REQUIRE(a.memory.buffers->size() == b.memory.buffers->size());
  for (std::size_t i = 0; i < a.memory.buffers->size(); ++i) {
    const Buffer& x = a.memory.buffers->at(i);
    const Buffer& y = b.memory.buffers->at(i);
    REQUIRE(x.size_bytes() == y.size_bytes());
    CHECK(std::memcmp(x.data(), y.data(), x.size_bytes()) == 0);
  }
}

}  // namespace gemmad
