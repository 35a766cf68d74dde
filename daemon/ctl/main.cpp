#include <csignal>
#include <cstdio>
#include <exception>
#include <span>

#include "daemon/ctl/commands.h"

namespace gemmad {
namespace {

int run(std::span<const char* const> arguments) {
  try {
    const CtlOptions options = parse_ctl_options(arguments);
    if (options.command == "help") {
      std::printf("%s", ctl_help_text().c_str());
      return 0;
    }
    ControlClient client =
        ControlClient::connect(options.socket, std::chrono::duration<double>(options.wait_ready_s));
    if (options.command == "encode") return encode_command(client, options);
    if (options.command == "encode-file") return encode_file_command(client, options);
    if (options.command == "enhance") return enhance_command(client, options);
    if (options.command == "bench") return bench_command(client, options);
    if (options.command == "tokenize") return tokenize_command(client, options);
    return plain_command(client, options);
  } catch (const CtlUsageError& error) {
    std::fprintf(stderr, "gemmactl: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gemmactl: %s\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace gemmad

int main(int argc, char** argv) {
  return gemmad::run(std::span<const char* const>(argv, static_cast<std::size_t>(argc)).subspan(1));
}
