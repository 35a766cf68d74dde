#!/usr/bin/env bash
# with_numpy.sh PYTHON ARGUMENTS...: runs PYTHON, or the system's own where only that has numpy; without numpy says so and
# ends with 77, for ctest: skipped.
set -euo pipefail
for python in "$1" /usr/bin/python3; do
  if "$python" -c 'import numpy' 2>/dev/null; then
    exec "$python" "${@:2}"
  fi
done
echo "SKIPPED: neither $1 nor /usr/bin/python3 has numpy: run scripts/install_deps.sh"
exit 77
