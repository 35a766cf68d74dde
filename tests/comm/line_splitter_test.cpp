#include "comm/line_splitter.h"

#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace gemmad {
namespace {

/// The lines in what is fed, "!" for one that is too long.
std::vector<std::string> feed(LineSplitter& splitter, std::string_view bytes) {
  std::vector<std::string> events;
  std::string_view line;
  while (true) {
    switch (splitter.next(bytes, line)) {
      case LineSplitter::Event::kNeedMore:
        return events;
      case LineSplitter::Event::kLine:
        events.emplace_back(line);
        break;
      case LineSplitter::Event::kTooLong:
        events.emplace_back("!");
        break;
    }
  }
}

using Lines = std::vector<std::string>;

TEST_CASE("Lines come out whole, however the bytes are cut") {
  const std::string text =
      "alpha\n\n\nb\nlonger than ten\nexactly_10\neleven_byte\n" + std::string(300, 'x') + "\nend\nhalf";
  const Lines expected = {"alpha", "b", "!", "exactly_10", "!", "!", "end"};
  const auto seed = GENERATE(0u, 1u, 2u, 3u, 4u, 5u);
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  LineSplitter splitter(10);
  Lines lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = seed == 0 ? 1 : 1 + random() % (seed * 20);
    for (std::string& line : feed(splitter, std::string_view(text).substr(at, size)))
      lines.push_back(std::move(line));
    at += size;
  }
  CHECK(lines == expected);
  CHECK(splitter.has_partial_line());
}

TEST_CASE("A line too long is told while it still comes, and once") {
  LineSplitter splitter(10);
  CHECK(feed(splitter, "12345678901") == Lines{"!"});
  CHECK(feed(splitter, std::string(100'000, 'x')).empty());
  CHECK(splitter.has_partial_line());
  CHECK(feed(splitter, "\nnext\n") == Lines{"next"});
  CHECK_FALSE(splitter.has_partial_line());
}

TEST_CASE("Zero bytes and carriage returns are bytes of the line") {
  LineSplitter splitter(10);
  CHECK(feed(splitter, std::string_view("a\0b\r\n", 5)) == Lines{std::string("a\0b\r", 4)});
}

}  // namespace
}  // namespace gemmad
