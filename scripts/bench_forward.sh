#!/usr/bin/env bash
# How long the CPU's forward pass takes, against its projection GEMMs alone.
#
#   scripts/bench_forward.sh [MODEL_DIR] [forward_bench's options]
#
# MODEL_DIR is a Hugging Face Gemma 3 directory; without it: random weights of the sizes of Gemma 3 270M.
set -euo pipefail

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
  exit 0
fi

root=$(cd "$(dirname "$0")/.." && pwd)
build=${GEMMAD_BUILD:-$root/build/release}

arguments=()
if [[ $# -gt 0 && $1 != --* ]]; then
  arguments+=(--model "$1")
  shift
fi
if [[ ! -f $build/CMakeCache.txt ]]; then
  (cd "$root" && cmake --preset release -B "$build" >/dev/null)
fi
cmake --build "$build" --target forward_bench >/dev/null
exec "$build/tests/bench/forward_bench" "${arguments[@]}" "$@"
