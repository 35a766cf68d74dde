#!/usr/bin/env bash
# Installs, builds and runs every test that this machine can run. The last lines are ctest's; so is the exit status.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: test.sh [--quick] [--sanitize asan|tsan]

  --quick            unit tests only: no daemon is started
  --sanitize PRESET  instead of the release build, the unit tests of a sanitizer build
TEXT
}

preset=release
filter=()
while (($#)); do
  case $1 in
    --quick) filter=(-L '^unit$'); shift ;;
    --sanitize)
      preset=${2:-}
      [[ $preset == asan || $preset == tsan ]] || { echo "test: --sanitize takes asan or tsan" >&2; exit 2; }
      filter=(-L '^unit$')
      shift 2
      ;;
    -h | --help) usage; exit 0 ;;
    *) echo "test: unknown option '$1'; see --help" >&2; exit 2 ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
step() { printf '== [%4d s] %s\n' "$SECONDS" "$1"; }

step "dependencies"
bash scripts/install_deps.sh

step "build ($preset)"
# A build folder that was configured before needs no word from here: ninja looks after itself.
[[ -f build/$preset/build.ninja ]] || cmake --preset "$preset"
cmake --build --preset "$preset" --parallel "$(nproc)"

step "tests"
if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
  echo "SKIPPED: every test labelled gpu: this machine has no NVIDIA GPU"
  filter+=(-LE '^gpu$')
fi
if ((EUID == 0)); then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
status=0
ctest --preset "$preset" --parallel "$(nproc)" "${filter[@]}" || status=$?
exit "$status"
