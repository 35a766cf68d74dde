#include "daemon/ctl/encode_file/line_reader.h"

#include <vector>

#include "daemon/ctl/options.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

namespace gemmad {
namespace {

struct Read {
  std::vector<std::int64_t> numbers;
  std::vector<std::string> texts;
};

Read read_all(const std::string& file) {
  Read read;
  LineReader lines(file);
  while (const auto line = lines.next()) {
    read.numbers.push_back(line->number);
    read.texts.push_back(line->too_long ? "too long" : line->text);
  }
  return read;
}

TEST_CASE("lines keep their numbers where empty ones are skipped") {
  const ScratchFolder folder;
  const auto file = folder.path() / "in";
  write_file(file, "a\n\n \t\r\nb\r\nc");
  const Read read = read_all(file);
  CHECK(read.numbers == std::vector<std::int64_t>{1, 4, 5});
  CHECK(read.texts == std::vector<std::string>{"a", "b\r", "c"});
  CHECK(count_lines(file) == 3);
}

TEST_CASE("an empty file has no lines") {
  const ScratchFolder folder;
  write_file(folder.path() / "in", "");
  CHECK(count_lines(folder.path() / "in") == 0);
}

TEST_CASE("a line of the limit is taken, a longer one is told and skipped") {
  const ScratchFolder folder;
  const auto file = folder.path() / "in";
  const std::string longest(LineReader::kMaxLineBytes, 'x');
  write_file(file, longest + "\n" + longest + "y\n" + longest + longest + longest + "\nend");
  const Read read = read_all(file);
  CHECK(read.numbers == std::vector<std::int64_t>{1, 2, 3, 4});
  CHECK(read.texts == std::vector<std::string>{longest, "too long", "too long", "end"});
}

TEST_CASE("lines come whole across the buffer's end") {
  const ScratchFolder folder;
  const auto file = folder.path() / "in";
  std::string content;
  std::vector<std::string> texts;
  for (int i = 0; i < 2000; ++i) {
    texts.push_back(std::to_string(i) + std::string(static_cast<std::size_t>(i % 997), 'z'));
    content += texts.back() + "\n";
  }
  write_file(file, content);
  CHECK(read_all(file).texts == texts);
}

TEST_CASE("what is no regular file is refused") {
  const ScratchFolder folder;
  CHECK_THROWS_AS(LineReader(folder.path()), CtlUsageError);
  CHECK_THROWS_AS(LineReader(folder.path() / "nothing"), CtlUsageError);
}

}  // namespace
}  // namespace gemmad
