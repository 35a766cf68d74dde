// What open_model accepts, and the bad directories that it refuses by name and reason.
#include "daemon/model/model_files.h"

#include <functional>
#include <nlohmann/json.hpp>

#include "tests/daemon/model/model_testing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/tensor_file.h"

namespace gemmad {
namespace {

namespace fs = std::filesystem;

// A copy of a small model that a test may damage.
class ModelCopy {
 public:
  explicit ModelCopy(const std::string& model = "gemma3-tiny") {
    for (const auto& entry : fs::directory_iterator(model_folder(model))) {
      if (!entry.path().filename().string().starts_with("golden")) fs::copy(entry.path(), path());
    }
  }

  const fs::path& path() const { return folder_.path(); }
  fs::path weights() const { return path() / "model.safetensors"; }
  fs::path index() const { return path() / "model.safetensors.index.json"; }

  void change_tensors(const std::function<void(std::vector<TensorToWrite>&)>& change) {
    std::vector<TensorToWrite> tensors = read_tensors(weights());
    change(tensors);
    write_file(weights(), safetensors_bytes(tensors));
  }
  void change_index(const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json json = nlohmann::json::parse(read_file(index()));
    change(json);
    write_file(index(), json.dump());
  }

 private:
  ScratchFolder folder_;
};

TensorToWrite& tensor_named(std::vector<TensorToWrite>& tensors, const std::string& end) {
  for (TensorToWrite& tensor : tensors) {
    if (tensor.name.ends_with(end)) return tensor;
  }
  throw std::runtime_error("no tensor " + end);
}

// "accepted", or what was said.
std::string refusal(const fs::path& directory) {
  try {
    open_model(directory);
  } catch (const ModelFileError& error) {
    return error.what();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

void check_refused(const ModelCopy& model, const fs::path& file, std::initializer_list<const char*> reasons) {
  const std::string text = refusal(model.path());
  INFO(text);
  CHECK(text.starts_with(file.string()));
  for (const char* reason : reasons)
    CHECK(text.find(reason) != std::string::npos);
}

const char* const kLfsPointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n";
const char* const kHtmlPage = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n";

}  // namespace

TEST_CASE("A single file and shards with an index open, and count the text model's bytes") {
  const ModelFiles single = open_model(model_folder("gemma3-tiny"));
  CHECK(single.config().num_kv_heads == 2);
  CHECK(single.checkpoint()->size_bytes() == 2171072);  // up to where the projector begins in that file
  CHECK(fs::exists(single.tokenizer_file()));
  const ModelFiles sharded = open_model(model_folder("gemma3-text-tiny"));
  CHECK(sharded.checkpoint()->size_bytes() == 1974464);  // the index's own total
}

TEST_CASE("A directory with a configuration alone opens as far as that, with a tokenizer where it has one") {
  const ModelCopy model;
  fs::remove(model.weights());
  CHECK(open_model_config(model.path()) == open_model(model_folder("gemma3-tiny")).config());
  CHECK(find_tokenizer(model.path()) == model.path() / "tokenizer.json");
  write_file(model.path() / "tokenizer.json", kLfsPointer);
  CHECK_THROWS_AS(find_tokenizer(model.path()), ModelFileError);
  fs::remove(model.path() / "tokenizer.json");
  CHECK_FALSE(find_tokenizer(model.path()).has_value());
  fs::remove(model.path() / "config.json");
  CHECK_THROWS_AS(open_model_config(model.path()), ModelFileError);
}

TEST_CASE("ModelFiles can be moved, and what it handed out outlives it") {
  ModelFiles first = open_model(model_folder("gemma3-tiny"));
  const ModelFiles second = std::move(first);
  HostTensor table;
  {
    const ModelFiles third = open_model(model_folder("gemma3-tiny"));
    table = third.checkpoint()->tensor("embed_tokens.weight");
  }
  const HostTensor other = second.checkpoint()->tensor("embed_tokens.weight");
  CHECK(compare_bits(table.view, other.view).ok);
  CHECK_THROWS_AS(second.checkpoint()->tensor("no such"), ModelFileError);
}

TEST_CASE("All layouts of names, an extra outer prefix, and a tied head are accepted") {
  const std::string prefix = GENERATE("model.language_model.", "model.", "language_model.model.");
  CAPTURE(prefix);
  ModelCopy model;
  model.change_tensors([&](std::vector<TensorToWrite>& tensors) {
    const std::string old_prefix = "language_model.model.";
    for (TensorToWrite& tensor : tensors) {
      if (tensor.name.starts_with(old_prefix)) {
        tensor.name = prefix + tensor.name.substr(old_prefix.size());
      } else if (prefix == "model.language_model.") {
        tensor.name = "model." + tensor.name;
      }
    }
    TensorToWrite head = tensor_named(tensors, "embed_tokens.weight");
    head.name = "lm_head.weight";
    tensors.push_back(head);
  });
  CHECK(refusal(model.path()) == "accepted");
}

TEST_CASE("The checkpoint lists the whole table, and a tensor that was let go can be read again") {
  const ModelFiles files = open_model(model_folder("gemma3-tiny"));
  const Checkpoint& checkpoint = *files.checkpoint();
  std::uint64_t size_bytes = 0;
  for (const auto& [name, tensor] : checkpoint.tensors())
    size_bytes += tensor.view.size_bytes();
  CHECK(size_bytes == checkpoint.size_bytes());
  const HostTensor table = checkpoint.tensor("embed_tokens.weight");
  const std::string before(table.view.as<char>(), table.view.size_bytes());
  checkpoint.release(table);
  CHECK(before == std::string(table.view.as<char>(), table.view.size_bytes()));
}

TEST_CASE(
    "A tensor of a file that was cut after it was opened is an error that names the file, not a signal") {
  const ModelCopy model;
  const ModelFiles files = open_model(model.path());
  const std::string name = files.checkpoint()->entries().front().name;
  CHECK(files.checkpoint()->tensor(name).view.data != nullptr);
  fs::resize_file(model.weights(), fs::file_size(model.weights()) / 2);
  std::string message = "read";
  try {
    files.checkpoint()->tensor(name);
  } catch (const ModelFileError& error) {
    message = error.what();
  }
  CHECK(message.find(model.weights().string()) != std::string::npos);
}

TEST_CASE("A directory that is none, or holds no model, is refused") {
  const ScratchFolder folder;
  CHECK(refusal(folder.path() / "missing").find("not a directory") != std::string::npos);
  CHECK(refusal(folder.path()).find("config.json: missing") != std::string::npos);
  const ModelCopy model;
  fs::remove(model.weights());
  check_refused(model, model.path(), {"neither model.safetensors nor model.safetensors.index.json"});
}

TEST_CASE("A missing tokenizer is refused") {
  const ModelCopy model;
  fs::remove(model.path() / "tokenizer.json");
  check_refused(model, model.path() / "tokenizer.json", {"missing"});
}

TEST_CASE("Empty files, LFS pointers and HTML pages in place of any file are named as such") {
  const std::string file = GENERATE("config.json", "tokenizer.json", "model.safetensors");
  CAPTURE(file);
  const ModelCopy model;
  write_file(model.path() / file, "");
  check_refused(model, model.path() / file, {"empty (0 bytes)"});
  write_file(model.path() / file, kLfsPointer);
  check_refused(model, model.path() / file, {"git-LFS pointer"});
  write_file(model.path() / file, kHtmlPage);
  check_refused(model, model.path() / file, {"HTML page"});
}

TEST_CASE("A bad config.json is refused") {
  const ModelCopy model;
  write_file(model.path() / "config.json", "{\"model_type\": ");
  CHECK_THROWS_AS(open_model(model.path()), ConfigError);
}

TEST_CASE("Truncated headers and data are refused") {
  const ModelCopy model;
  const std::string bytes = read_file(model.weights());
  for (std::size_t kept : {std::size_t{1}, std::size_t{7}, std::size_t{8}, std::size_t{5000},
                           bytes.size() / 2, bytes.size() - 1}) {
    CAPTURE(kept);
    write_file(model.weights(), bytes.substr(0, kept));
    check_refused(model, model.weights(), {"cut short"});
  }
  write_file(model.weights(), bytes);
  CHECK(refusal(model.path()) == "accepted");
}

TEST_CASE("Trailing bytes are refused") {
  const ModelCopy model;
  write_file(model.weights(), read_file(model.weights()) + "\n");
  check_refused(model, model.weights(), {"1 trailing bytes"});
}

TEST_CASE("A header length of 2^63 is refused") {
  const ModelCopy model;
  std::string bytes = read_file(model.weights());
  bytes.replace(0, 8, std::string("\0\0\0\0\0\0\0\x80", 8));
  write_file(model.weights(), bytes);
  check_refused(model, model.weights(), {"9223372036854775808", "limit"});
}

TEST_CASE("A weight of a type that is none for weights is refused") {
  ModelCopy model;
  model.change_tensors([](std::vector<TensorToWrite>& tensors) {
    TensorToWrite& tensor = tensor_named(tensors, "layers.2.self_attn.q_proj.weight");
    tensor.dtype = "I16";
  });
  check_refused(model, model.weights(),
                {"layers.2.self_attn.q_proj.weight' has dtype I16", "BF16, F16 or F32"});
}

TEST_CASE("Missing, surplus and wrong-shaped tensors are all named in one message") {
  ModelCopy model;
  model.change_tensors([](std::vector<TensorToWrite>& tensors) {
    std::swap(tensor_named(tensors, "layers.1.mlp.down_proj.weight").shape[0],
              tensor_named(tensors, "layers.1.mlp.down_proj.weight").shape[1]);
    tensor_named(tensors, "layers.7.mlp.up_proj.weight").name =
        "language_model.model.layers.8.mlp.up_proj.weight";
    tensors.push_back({"something.else", "U8", {1}, "x"});
  });
  check_refused(
      model, model.weights(),
      {"4 tensors do not fit",
       "'language_model.model.layers.1.mlp.down_proj.weight' has shape [192, 96], expected [96, 192]",
       "missing 'layers.7.mlp.up_proj.weight' [192, 96]",
       "surplus 'language_model.model.layers.8.mlp.up_proj.weight'", "surplus 'something.else'"});
}

TEST_CASE("A checkpoint of another size than config.json says names ten tensors and counts the rest") {
  const ModelCopy model;
  nlohmann::json config = nlohmann::json::parse(read_file(model.path() / "config.json"));
  config["text_config"]["hidden_size"] = 128;
  config["text_config"]["num_hidden_layers"] = 12;
  config["text_config"].erase("layer_types");
  write_file(model.path() / "config.json", config.dump());
  // All but the two head norms of eight layers, four layers of thirteen, the table and the last norm.
  check_refused(model, model.weights(),
                {"142 tensors do not fit config.json", "; and 132 more",
                 "embed_tokens.weight' has shape [512, 96], expected [512, 128]"});
}

TEST_CASE("Two tensors for one place are refused") {
  ModelCopy model;
  model.change_tensors([](std::vector<TensorToWrite>& tensors) {
    TensorToWrite again = tensor_named(tensors, "model.norm.weight");
    again.name = "model.norm.weight";
    tensors.push_back(again);
  });
  check_refused(model, model.weights(), {"the same as"});
}

TEST_CASE("A head of another shape is refused") {
  ModelCopy model;
  model.change_tensors([](std::vector<TensorToWrite>& tensors) {
    tensors.push_back({"lm_head.weight", "U8", {3, 1}, "abc"});
  });
  check_refused(model, model.weights(), {"'lm_head.weight' has shape [3, 1], expected [512, 96]"});
}

TEST_CASE("A missing shard is refused by its name") {
  const ModelCopy model("gemma3-text-tiny");
  fs::remove(model.path() / "model-00003-of-00007.safetensors");
  check_refused(model, model.path() / "model-00003-of-00007.safetensors",
                {"missing", "model.safetensors.index.json"});
}

TEST_CASE("An index that names a file that is not there is refused") {
  ModelCopy model("gemma3-text-tiny");
  model.change_index([](nlohmann::json& index) {
    index["weight_map"]["model.norm.weight"] = "model-00008-of-00007.safetensors";
  });
  check_refused(model, model.path() / "model-00008-of-00007.safetensors", {"missing"});
}

TEST_CASE("An index and its shards must agree") {
  ModelCopy model("gemma3-text-tiny");
  SECTION("the index names a tensor that the shard lacks") {
    model.change_index([](nlohmann::json& index) {
      index["weight_map"]["model.extra"] = "model-00001-of-00007.safetensors";
    });
    check_refused(model, model.path() / "model-00001-of-00007.safetensors", {"lacks tensor 'model.extra'"});
  }
  SECTION("a shard holds a tensor that the index does not name") {
    model.change_index([](nlohmann::json& index) { index["weight_map"].erase("model.norm.weight"); });
    check_refused(model, model.path() / "model-00007-of-00007.safetensors",
                  {"holds tensor 'model.norm.weight'"});
  }
  SECTION("a shard holds a tensor that the index places elsewhere") {
    model.change_index([](nlohmann::json& index) {
      index["weight_map"]["model.norm.weight"] = "model-00001-of-00007.safetensors";
    });
    const std::string text = refusal(model.path());
    INFO(text);
    CHECK(text.find("model.norm.weight") != std::string::npos);
  }
}

TEST_CASE("A damaged shard is refused by its name") {
  const ModelCopy model("gemma3-text-tiny");
  const fs::path shard = model.path() / "model-00005-of-00007.safetensors";
  const std::string bytes = read_file(shard);
  write_file(shard, bytes.substr(0, bytes.size() - 100));
  check_refused(model, shard, {"cut short"});
  write_file(shard, kLfsPointer);
  check_refused(model, shard, {"git-LFS pointer"});
}

TEST_CASE("An index that is not of its form is refused") {
  const std::string bytes =
      GENERATE("", "{", "[]", "{}", R"({"weight_map": 3})", R"({"weight_map": {}})",
               R"({"weight_map": {"a": 3}})", R"({"weight_map": {"a": ""}})",
               R"({"weight_map": {"a": "../model.safetensors"}})", R"({"weight_map": {"a": "/etc/passwd"}})",
               R"({"weight_map": {"a": ".."}})", R"({"weight_map": {"a": "x", "a": "y"}})");
  CAPTURE(bytes);
  const ModelCopy model("gemma3-text-tiny");
  write_file(model.index(), bytes);
  check_refused(model, model.index(), {});
}

}  // namespace gemmad
