#include "daemon/ctl/encode_file/output_folder.h"

#include <array>
#include <fstream>

#include "daemon/ctl/options.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

namespace gemmad {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using State = OutputFolder::State;

const json kSettings = {{"format", "gemmad"}, {"model", {{"path", "/m"}}}};
const json kOtherSettings = {{"format", "gemmad"}, {"model", {{"path", "/n"}}}};

InputPrompt prompt_at(std::int64_t line, const std::string& text = "a") {
  return parse_input_line({line, json(text).dump(), false}, "prompt", {512, 1 << 16});
}

void save_some(OutputFolder& folder, const InputPrompt& prompt) {
  static constexpr std::array<float, 2> kData = {1, 2};
  folder.enter(prompt.line);
  folder.save(prompt, {{"t", "F32", {2}, kData.data(), sizeof kData}});
}

TEST_CASE("files lie in folders of a thousand lines") {
  const ScratchFolder scratch;
  const OutputFolder folder(scratch.path() / "out", kSettings, false);
  CHECK(folder.file_of(prompt_at(1)) == scratch.path() / "out" / "000000" / "00000001.safetensors");
  CHECK(folder.file_of(prompt_at(1000)) == scratch.path() / "out" / "000000" / "00001000.safetensors");
  CHECK(folder.file_of(prompt_at(1001)) == scratch.path() / "out" / "000001" / "00001001.safetensors");
  InputPrompt named = prompt_at(123'456);
  named.id = "clip";
  CHECK(folder.file_of(named) == scratch.path() / "out" / "000123" / "clip.safetensors");
}

TEST_CASE("only the file of this prompt and these settings is done") {
  const ScratchFolder scratch;
  OutputFolder folder(scratch.path(), kSettings, false);
  CHECK(folder.state_of(prompt_at(1)) == State::kMissing);
  save_some(folder, prompt_at(1));
  CHECK(folder.state_of(prompt_at(1)) == State::kDone);
  CHECK(folder.state_of(prompt_at(1, "another text")) == State::kForeign);
  CHECK(folder.state_of(prompt_at(2)) == State::kMissing);
}

TEST_CASE("a file of settings from before is encoded again, one of someone else is not touched") {
  const ScratchFolder scratch;
  {
    OutputFolder before(scratch.path(), kOtherSettings, false);
    save_some(before, prompt_at(1));
  }
  const OutputFolder folder(scratch.path(), kSettings, true);
  CHECK(folder.state_of(prompt_at(1)) == State::kMissing);
  write_safetensors(folder.file_of(prompt_at(2)), {}, {{"made_by", "hand"}});
  CHECK(folder.state_of(prompt_at(2)) == State::kForeign);
}

TEST_CASE("a file that is cut off, too long or no tensors at all is encoded again") {
  const ScratchFolder scratch;
  OutputFolder folder(scratch.path(), kSettings, false);
  const InputPrompt prompt = prompt_at(1);
  const fs::path file = folder.file_of(prompt);
  save_some(folder, prompt);
  const std::string whole = read_file(file);
  for (const std::string& spoiled :
       {whole.substr(0, whole.size() - 1), whole.substr(0, 20), whole + "x", std::string(), std::string("{}"),
        std::string(64, '\xff'), std::string(64, '\0')}) {
    write_file(file, spoiled);
    CHECK(folder.state_of(prompt) == State::kMissing);
  }
  write_file(file, whole);
  CHECK(folder.state_of(prompt) == State::kDone);
}

TEST_CASE("the manifest comes first, stays with the same settings and tells other ones") {
  const ScratchFolder scratch;
  const fs::path manifest = scratch.path() / "manifest.json";
  { const OutputFolder folder(scratch.path(), kSettings, false); }
  CHECK(json::parse(read_file(manifest))["settings"] == kSettings);
  const auto written = fs::last_write_time(manifest);
  { const OutputFolder folder(scratch.path(), kSettings, false); }
  CHECK(fs::last_write_time(manifest) == written);
  try {
    const OutputFolder folder(scratch.path(), kOtherSettings, false);
    FAIL("other settings were taken");
  } catch (const CtlUsageError& error) {
    CHECK(std::string(error.what()).find(R"(/model/path is "/m" and not "/n")") != std::string::npos);
  }
  { const OutputFolder folder(scratch.path(), kOtherSettings, true); }
  CHECK(json::parse(read_file(manifest))["settings"] == kOtherSettings);
}

TEST_CASE("a manifest of something else is refused, and replaced when asked for") {
  const ScratchFolder scratch;
  for (const char* const content : {"", "[]", "{}", R"({"settings": )"}) {
    write_file(scratch.path() / "manifest.json", content);
    CHECK_THROWS_AS(OutputFolder(scratch.path(), kSettings, false), CtlUsageError);
  }
  CHECK_NOTHROW(OutputFolder(scratch.path(), kSettings, true));
}

TEST_CASE("what killed processes left is removed, and nothing else") {
  const ScratchFolder scratch;
  fs::create_directory(scratch.path() / "000000");
  const auto in_folder = [&](const char* name) { return scratch.path() / "000000" / name; };
  for (const char* const name :
       {"a.safetensors.part.17", "a.safetensors", "b.part.x", "c.part.1.safetensors"})
    write_file(in_folder(name), "x");
  write_file(scratch.path() / "manifest.json.part.3", "x");
  OutputFolder folder(scratch.path(), kSettings, false);
  CHECK(folder.enter(5));
  CHECK_FALSE(folder.enter(6));
  CHECK(folder.enter(1001));
  CHECK_FALSE(fs::exists(scratch.path() / "manifest.json.part.3"));
  CHECK_FALSE(fs::exists(in_folder("a.safetensors.part.17")));
  for (const char* const name : {"a.safetensors", "b.part.x", "c.part.1.safetensors"})
    CHECK(fs::exists(in_folder(name)));
}

TEST_CASE("two at a time cannot write into a folder") {
  const ScratchFolder scratch;
  {
    const OutputFolder folder(scratch.path(), kSettings, false);
    CHECK_THROWS_AS(OutputFolder(scratch.path(), kSettings, false), CtlUsageError);
  }
  CHECK_NOTHROW(OutputFolder(scratch.path(), kSettings, false));
}

}  // namespace
}  // namespace gemmad
