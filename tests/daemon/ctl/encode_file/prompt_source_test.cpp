#include "daemon/ctl/encode_file/prompt_source.h"

#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

namespace gemmad {
namespace {

using nlohmann::json;

/// A source over a file of lines, with all that it needs.
struct TestRun {
  explicit TestRun(const std::string& content, std::size_t batch = 3, bool skips = false,
                   bool overwrites = false, std::size_t max_request_bytes = 1 << 16)
      : folder(scratch.path() / "out", {{"some", "settings"}}, overwrites) {
    input = scratch.path() / "in.jsonl";
    write_file(input, content);
    problems.emplace("in.jsonl", folder.skipped_list(), skips, run, progress, display);
    source.emplace(input, PromptSource::Settings{"prompt", {512, max_request_bytes}, batch, overwrites},
                   folder, *problems, progress, run);
  }

  void save(std::int64_t line, const std::string& text) {
    const InputPrompt prompt = parse_input_line({line, json(text).dump(), false}, "prompt", {512, 1 << 16});
    folder.enter(line);
    folder.save(prompt, {});
  }

  /// The lines of the next group, those that are there negative.
  std::vector<std::int64_t> lines() {
    std::vector<std::int64_t> found;
    const auto group = source->take();
    if (!group) return found;
    for (const GroupedPrompt& prompt : *group)
      found.push_back(prompt.is_there ? -prompt.input.line : prompt.input.line);
    return found;
  }

  ScratchFolder scratch;
  std::string input;
  RunState run;
  Progress progress{0};
  Display display;
  OutputFolder folder;
  std::optional<Problems> problems;
  std::optional<PromptSource> source;
};

using Lines = std::vector<std::int64_t>;

TEST_CASE("groups are as many prompts as a request has, the last one the rest") {
  TestRun test("\"a\"\n\n\"b\"\n\"c\"\n\"d\"\n");
  CHECK(test.lines() == Lines{1, 3, 4});
  CHECK(test.lines() == Lines{5});
  CHECK(test.lines().empty());
}

TEST_CASE("a group that is all there is passed over, one that is so in part is sent whole") {
  TestRun test("\"a\"\n\"b\"\n\"c\"\n\"d\"\n\"e\"\n\"f\"\n\"g\"\n");
  for (const auto& [line, text] : {std::pair{1, "a"}, {2, "b"}, {3, "c"}, {5, "e"}})
    test.save(line, text);
  CHECK(test.lines() == Lines{4, -5, 6});
  CHECK(test.lines() == Lines{7});
  CHECK(test.progress.counts().there == 4);
}

TEST_CASE("a group ends where a request cannot hold more") {
  TestRun test("\"aaaaaa\"\n\"bbbbbb\"\n\"cccccc\"\n\"d\"\n", 3, false, false, 20);
  CHECK(test.lines() == Lines{1, 2});
  CHECK(test.lines() == Lines{3, 4});
}

TEST_CASE("a line that is no prompt ends the run behind those before it") {
  TestRun test("\"a\"\nnonsense\n\"b\"\n");
  CHECK(test.lines() == Lines{1});
  CHECK(test.lines().empty());
  CHECK(test.run.failure().find("in.jsonl:2: JSON") == 0);
}

TEST_CASE("a line that is no prompt is skipped and listed where that is asked for") {
  TestRun test("\"a\"\nnonsense\n\"b\"\n{}\n\"c\"\n", 3, true);
  CHECK(test.lines() == Lines{1, 3, 5});
  CHECK(test.run.failure().empty());
  CHECK(test.progress.counts().skipped == 2);
  const std::string list = read_file(test.folder.skipped_list());
  const std::size_t end = list.find('\n');
  CHECK(json::parse(list.substr(0, end))["line"] == 2);
  CHECK(json::parse(list.substr(end))["line"] == 4);
}

TEST_CASE("an id that comes twice within a folder is a problem, in another one it is not") {
  std::string content = R"({"prompt": "a", "id": "x"})"
                        "\n"
                        R"({"prompt": "b", "id": "x"})"
                        "\n";
  content += std::string(998, '\n') + R"({"prompt": "c", "id": "x"})"
                                      "\n";
  TestRun test(content, 3, true);
  CHECK(test.lines() == Lines{1, 1001});
  CHECK(read_file(test.folder.skipped_list()).find("that of line 1 too") != std::string::npos);
}

TEST_CASE("a file of another prompt is a problem, and replaced when asked for") {
  TestRun stops("\"a\"\n\"b\"\n");
  stops.save(2, "not b");
  CHECK(stops.lines() == Lines{1});
  CHECK(stops.run.failure().find("in.jsonl:2: ") == 0);
  CHECK(stops.run.failure().find("--overwrite") != std::string::npos);
  TestRun replaces("\"a\"\n\"b\"\n", 3, false, true);
  replaces.save(2, "not b");
  CHECK(replaces.lines() == Lines{1, 2});
}

TEST_CASE("a run that stops is given nothing more") {
  TestRun test("\"a\"\n\"b\"\n\"c\"\n\"d\"\n");
  CHECK(test.lines() == Lines{1, 2, 3});
  test.run.stop();
  CHECK(test.lines().empty());
  CHECK_FALSE(test.run.pause(std::chrono::hours(1)));
}

}  // namespace
}  // namespace gemmad
