#include "daemon/ctl/bench/bench_options.h"

#include <map>

#include "daemon/ctl/option_values.h"
#include "daemon/ctl/options.h"

namespace gemmad {

namespace {

constexpr std::int64_t kMaxPrompts = 65'536;  // the most that a daemon can be set to take
constexpr std::int64_t kMaxTokens = 1'000'000;

/// "128,8x20": one prompt of 128 tokens and 8 of 20.
std::vector<std::int64_t> token_counts(const std::string& text) {
  std::vector<std::int64_t> counts;
  for (const std::string& part : split_at_commas(text)) {
    const std::size_t times = part.find('x');
    const bool many = times != std::string::npos;
    const auto num_prompts =
        many ? to_number<std::int64_t>("COUNT in --tokens", part.substr(0, times), 1, kMaxPrompts) : 1;
    const auto num_tokens =
        to_number<std::int64_t>("--tokens", many ? part.substr(times + 1) : part, 1, kMaxTokens);
    counts.insert(counts.end(), static_cast<std::size_t>(num_prompts), num_tokens);
    if (counts.size() > static_cast<std::size_t>(kMaxPrompts)) {
      throw CtlUsageError("--tokens lists more than " + std::to_string(kMaxPrompts) + " prompts");
    }
  }
  return counts;
}

void set_read(BenchOptions& options, const std::string& value) {
  if (value == "none") {
    options.read_by = ReadBy::kNobody;
  } else if (value == "all") {
    options.read_by = ReadBy::kAllRanks;
  } else {
    options.read_rank = to_number("RANK in --read none|RANK|all", value, 0, 9999);
    options.read_by = ReadBy::kOneRank;
  }
}

using Set = void (*)(BenchOptions&, const std::string& value);

const std::map<std::string, Set>& setters() {
  using O = BenchOptions;
  using Text = const std::string&;
  static const std::map<std::string, Set> options = {
      {"--tokens",
       [](O& o, Text v) {
         o.tokens = token_counts(v);
         o.tokens_text = v;
       }},
      {"--concurrency",
       [](O& o, Text v) { o.concurrency = to_number<std::int64_t>("--concurrency", v, 1, 1024); }},
      {"--requests",
       [](O& o, Text v) { o.requests = to_number<std::int64_t>("--requests", v, 1, 1'000'000'000); }},
      {"--seconds", [](O& o, Text v) { o.seconds = to_number("--seconds", v, 0.01, 86400.0); }},
      {"--warmup", [](O& o, Text v) { o.warmup = to_number<std::int64_t>("--warmup", v, 0, 1'000'000); }},
      {"--read", set_read},
      {"--seed", [](O& o, Text v) { o.seed = to_number<std::uint64_t>("--seed", v, 0, UINT64_MAX); }},
  };
  return options;
}

}  // namespace

bool is_bench_option(const std::string& name) {
  return setters().contains(name);
}

void set_bench_option(BenchOptions& options, const std::string& name, const std::string& value) {
  setters().at(name)(options, value);
}

std::string bench_help_text() {
  return "bench: connections that each keep one request in flight. Its time runs until the reply has come "
         "and the\n"
         "readers have copied the result; where it went is what the daemon says, the rest is sockets and "
         "copying.\n"
         "  --tokens LIST         prompts of a request by their number of tokens, random ids: 128 "
         "(default),\n"
         "                        128,128,1024, 8x128\n"
         "  --concurrency N       connections (default 1)\n"
         "  --requests N          requests in all (default: as many as --seconds allows)\n"
         "  --seconds S           no request begins later (default 10, without --requests)\n"
         "  --warmup N            requests of each connection before the clock starts (default 1)\n"
         "  --read none|RANK|all  ranks of this host whose readers copy the result (default 0); on the "
         "others it is\n"
         "                        acquired and released unread, as unread results would fill the segment\n"
         "  --outputs, --layers, --modalities, --prefer, --deadline-ms   as of encode\n"
         "  --seed N              of the ids (default: another each time; where the daemon keeps results, a "
         "seed that\n"
         "                        it has had measures what it has kept)\n"
         "  --json                one line of JSON instead of the table\n"
         "Ctrl-C ends it with what was measured so far. Fails when a request failed.\n";
}

}  // namespace gemmad
