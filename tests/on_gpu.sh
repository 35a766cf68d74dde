#!/usr/bin/env bash
# on_gpu.sh COMMAND...: runs it where there is an NVIDIA GPU; elsewhere says so and ends with 77, for ctest: skipped.
set -euo pipefail
if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
  echo "SKIPPED: this machine has no NVIDIA GPU"
  exit 77
fi
exec "$@"
