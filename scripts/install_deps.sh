#!/usr/bin/env bash
# Installs what building and testing needs, on Debian 12 and Ubuntu 24.04. Asks nothing, and touches nothing that is
# there already: a second run needs neither root nor a network.
set -euo pipefail

usage="usage: install_deps.sh    installs the missing packages with apt-get (as root or through sudo)"
case ${1:-} in
  "") ;;
  -h | --help) echo "$usage"; exit 0 ;;
  *) printf 'install_deps: unknown argument %s\n%s\n' "'$1'" "$usage" >&2; exit 2 ;;
esac

# PACKAGE, or PACKAGE:COMMAND where the command will do, wherever it came from.
packages=(g++:g++ cmake:cmake ninja-build:ninja ccache:ccache pkg-config:pkg-config
  libopenmpi-dev openmpi-bin:mpirun nlohmann-json3-dev libspdlog-dev libutf8proc-dev libpng-dev libjpeg-dev
  liblcms2-dev catch2 libopenblas-dev
  python3:python3 python3-venv python3-numpy xz-utils:xz procps:pkill ca-certificates)

is_installed() {
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

find_missing() {
  missing=()
  local entry package command
  for entry in "${packages[@]}"; do
    package=${entry%%:*}
    command=${entry#"$package"}
    command=${command#:}
    if [[ -n $command ]] && command -v "$command" >/dev/null; then continue; fi
    is_installed "$package" || missing+=("$package")
  done
}

check_cmake() {
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*//p')
  if [[ $(printf '%s\n' 3.25 "$version" | sort -V | head -n 1) != 3.25 ]]; then
    echo "install_deps: $(command -v cmake) is version $version, but 3.25 is the oldest that works:" \
      "use Debian 12, Ubuntu 24.04 or newer, or put a newer cmake first in PATH" >&2
    exit 1
  fi
}

if ! command -v dpkg-query >/dev/null; then
  echo "install_deps: not a Debian or Ubuntu system (no dpkg-query): install the equivalents of" \
    "${packages[*]%%:*} yourself" >&2
  exit 1
fi

find_missing
if ((${#missing[@]})); then
  as_root=()
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      echo "install_deps: missing: ${missing[*]}; not root and no sudo: ask an administrator to run" \
        "'apt-get update && apt-get install ${missing[*]}'" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq
    -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  echo "install_deps: installing ${missing[*]}"
  "${apt[@]}" update || echo "install_deps: 'apt-get update' failed; trying with the package lists that are here" >&2
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null
  find_missing
  if ((${#missing[@]})); then
    echo "install_deps: still missing after the installation: ${missing[*]}" >&2
    exit 1
  fi
fi
check_cmake
