// gemmactl's commands. Each returns the exit status: 0 when everything asked for was delivered.
#pragma once

#include "daemon/ctl/control_client.h"
#include "daemon/ctl/options.h"

namespace gemmad {

/// Encodes the prompts of `options`, reads the results from the rank's segment, saves and reports them.
/// Throws ClientError, CtlUsageError for a prompts file that is none, SystemError when saving fails.
int encode_command(ControlClient& client, const CtlOptions& options);

/// Has a prompt rewritten and prints the text. Throws ClientError, CtlUsageError without a prompt,
/// ConfigError for a file that cannot be read.
int enhance_command(ControlClient& client, const CtlOptions& options);

/// Encodes the prompts of a file into files, as `options.encode_file` says. Its exit statuses are in the
/// help. Throws ClientError or ReaderError when it cannot begin, CtlUsageError for what this daemon cannot do
/// or a folder that does not fit, SystemError.
int encode_file_command(ControlClient& client, const CtlOptions& options);

/// Prints the ids of the texts of `options`. Throws as above.
int tokenize_command(ControlClient& client, const CtlOptions& options);

/// Sends the requests that `options.bench` describes and reports what they took. Throws ClientError when the
/// daemon cannot be measured at all, CtlUsageError for what this daemon cannot do.
int bench_command(ControlClient& client, const CtlOptions& options);

/// health, info, metrics, cancel, switch, sleep, wake, shutdown: one request, its reply printed.
int plain_command(ControlClient& client, const CtlOptions& options);

}  // namespace gemmad
