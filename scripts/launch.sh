#!/usr/bin/env bash
# Starts gemmad under mpirun, on this node or on several, with the flags that it needs there.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: launch.sh -n RANKS [--hostfile FILE] [--oversubscribe] [--build DIR] --config FILE [GEMMAD OPTION]...
       launch.sh -n RANKS [--hostfile FILE] [--oversubscribe] [--build DIR] --model DIR --socket PATH [GEMMAD OPTION]...

Starts RANKS ranks of gemmad and stays in the foreground. SIGTERM or Ctrl-C: gemmad finishes what waits and leaves with 0;
a second one ends it at once. SIGHUP: gemmad reads its settings again.

  -n RANKS          number of ranks: one a GPU, or on the CPU one a group of cores
  --hostfile FILE   hosts to start them on, a line each: HOST slots=RANKS. Rank 0, with the control socket, is on the first
                    one: name this machine there, since signals go to the ranks of this machine. All hosts see this source
                    tree, its build, the config and the model under the same paths. Inside a Slurm allocation leave it out.
  --oversubscribe   allow more ranks than cores
  --build DIR       folder of the build (default: build/release of this source tree)

Every other option goes to gemmad: see 'gemmad --help'.

What mpirun is told, and why:
  --bind-to none                              a rank's threads may use more than the one core MPI would give it
  --mca btl_vader_single_copy_mechanism none  containers often forbid reading another process's memory; MPI then copies
                                              through memory that the ranks share
As root only, mpirun's refusal to run as root is lifted through its two environment variables.
TEXT
}

die() {
  echo "launch: $1" >&2
  exit 2
}

# Of an option and what follows it.
needs_value() {
  [[ -n ${2:-} ]] || die "$1 needs a value; see --help"
}

build="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/release"
ranks=""
mpi=(--bind-to none --mca btl_vader_single_copy_mechanism none)
options=()
while (($#)); do
  case $1 in
    -n | --ranks) needs_value "$@"; ranks=$2; shift 2 ;;
    --hostfile)
      [[ -r ${2:-} ]] || die "--hostfile: '${2:-}' cannot be read"
      mpi+=(--hostfile "$2"); shift 2 ;;
    --build) needs_value "$@"; build=$2; shift 2 ;;
    --oversubscribe) mpi+=(--oversubscribe); shift ;;
    -h | --help) usage; exit 0 ;;
    *) options+=("$1"); shift ;;
  esac
done

[[ $ranks =~ ^[1-9][0-9]{0,3}$ ]] || die "-n RANKS: '$ranks' is not a number from 1 to 9999"
((${#options[@]})) || die "--config FILE (or --model DIR --socket PATH) is missing; see --help"
gemmad=$build/daemon/gemmad
[[ -x $gemmad ]] || die "$gemmad is not there: build it first (scripts/quickstart.sh does)"
command -v mpirun >/dev/null || die "mpirun is not there: run scripts/install_deps.sh"

if ((EUID == 0)); then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# mpirun answers a signal by killing the ranks within a second. So it gets a session of its own, out of Ctrl-C's reach,
# and the signal goes to the ranks themselves, which know how to stop.
setsid mpirun -n "$ranks" "${mpi[@]}" "$gemmad" "${options[@]}" &
mpirun=$!
signals=0
# shellcheck disable=SC2317  # the traps call it
pass_on() {
  signals=$((signals + 1))
  last_signal=$1
  if ((signals > 1)) || ! pkill -TERM -P "$mpirun" -x gemmad; then
    kill -TERM "$mpirun" 2>/dev/null || true
  fi
}
trap 'pass_on 2' INT
trap 'pass_on 15' TERM
trap 'pkill -HUP -P "$mpirun" -x gemmad || true' HUP
# wait returns for a signal too; mpirun's own status is kept for the last one.
while kill -0 "$mpirun" 2>/dev/null; do
  wait "$mpirun" || true
done
status=0
wait "$mpirun" || status=$?
# mpirun's status does not tell who ended it.
if ((status && signals > 1)); then status=$((128 + last_signal)); fi
exit "$status"
