#include <vector>

#include "daemon/ctl/options.h"
#include "tests/support/catch.h"

namespace gemmad {
namespace {

CtlOptions parsed(std::vector<const char*> arguments) {
  return parse_ctl_options(arguments);
}

TEST_CASE("encode-file takes a file and where to") {
  const EncodeFileOptions options = parsed({"encode-file", "in.jsonl", "--out", "d"}).encode_file;
  CHECK(options.input == "in.jsonl");
  CHECK(options.folder == "d");
  CHECK(options.field == "prompt");
  CHECK(options.format == FileFormat::kGemmad);
  CHECK(options.in_flight == 4);
  CHECK_FALSE(options.batch.has_value());
  CHECK_FALSE(options.skips_errors);
  CHECK_FALSE(options.overwrites);
}

TEST_CASE("a file may be called like a command") {
  CHECK(parsed({"encode-file", "encode", "--out", "d"}).encode_file.input == "encode");
}

TEST_CASE("encode-file takes all its options") {
  const CtlOptions options =
      parsed({"encode-file", "--out=d", "--field", "caption", "--on-error", "skip", "--format", "trainer",
              "--in-flight", "9", "--batch=3", "--overwrite", "--rank", "1", "--json", "in.jsonl"});
  CHECK(options.encode_file.field == "caption");
  CHECK(options.encode_file.skips_errors);
  CHECK(options.encode_file.format == FileFormat::kTrainer);
  CHECK(options.encode_file.in_flight == 9);
  CHECK(options.encode_file.batch == 3);
  CHECK(options.encode_file.overwrites);
  CHECK(options.rank == 1);
  CHECK(options.json);
}

TEST_CASE("encode-file refuses what it does not know") {
  using Arguments = std::vector<const char*>;
  for (const Arguments& arguments :
       {Arguments{"encode-file", "a", "b"}, Arguments{"encode-file", "a", "--prompt", "x"},
        Arguments{"encode-file", "a", "--tokens", "3"}, Arguments{"encode-file", "a", "--mode", "adaptive"},
        Arguments{"encode-file", "a", "--on-error", "ignore"},
        Arguments{"encode-file", "a", "--format", "pt"}, Arguments{"encode-file", "a", "--in-flight", "0"},
        Arguments{"encode-file", "a", "--batch", "0"}, Arguments{"encode-file", "a", "--overwrite=yes"},
        Arguments{"encode", "--out", "d"}, Arguments{"bench", "--overwrite"},
        Arguments{"encode-file", "--nonsense"}}) {
    CHECK_THROWS_AS(parse_ctl_options(arguments), CtlUsageError);
  }
}

}  // namespace
}  // namespace gemmad
