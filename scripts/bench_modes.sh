#!/usr/bin/env bash
# Measures gemmad in several modes and at several numbers of ranks: a daemon for each combination, and on it
# 'gemmactl bench' for each case.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/daemon_process.sh disable=SC1091
source "$root/scripts/daemon_process.sh"
build=$root/build/release
model="" out=$root/build/bench_modes.jsonl requests=20
ranks_list="1 2 4" modes="sharded:tensor sharded:layer batch_parallel adaptive" cases="128 128,128 1024 8x128"
launch_options=() gemmad_options=(--set result_cache_mib=0) bench_options=()
client="" run_dir="" all_well=true

usage() {
  cat <<TEXT
usage: bench_modes.sh --model DIR [OPTION]... [-- OPTION OF GEMMACTL BENCH...]

Starts gemmad in each mode with each number of ranks on this machine, runs 'gemmactl bench' on it for each
case, and adds one line of JSON a run to a file. Where gemmad refuses to start, the line has "refused", with
what it said; where a case could not be measured, "error".

  --model DIR      a Gemma 3 model in Hugging Face form
  --ranks LIST     numbers of ranks (default "$ranks_list")
  --modes LIST     MODE, or sharded:STRATEGY[:RANKS_PER_REPLICA]
                   (default "$modes")
  --cases LIST     prompts of a request by their tokens, as 'gemmactl bench --tokens' takes them
                   (default "$cases")
  --requests N     requests a case (default $requests)
  --set KEY=VALUE  a setting of gemmad; may come several times
  --oversubscribe  allow more ranks than cores
  --build DIR      folder of the build (default: build/release of this source tree)
  --out FILE       where the lines go (default: build/bench_modes.jsonl of this source tree)

Exit status: 0 when every request that was sent succeeded, 1 when not, 2 for wrong use.
TEXT
}

die() {
  echo "bench_modes: $1" >&2
  exit 2
}

# Of an option and what follows it.
needs_value() {
  [[ -n ${2:-} ]] || die "$1 needs a value; see --help"
}

clean_up() {
  local status=$?
  trap - EXIT
  trap '' INT TERM
  [[ -z $client ]] || kill -KILL "$client" 2>/dev/null || true
  end_daemon 300
  [[ -z $run_dir ]] || rm -rf "$run_dir"
  exit "$status"
}

# gemmactl in the background, so that a signal does not have to wait for it.
gemmactl() {
  "$build/daemon/ctl/gemmactl" --socket "$run_dir/control.sock" "$@" </dev/null &
  client=$!
  local status=0
  wait "$client" || status=$?
  client=""
  return "$status"
}

# append_line RANKS MODE CASE: one line to the file and one to the screen, from what $run_dir holds of info
# and bench. CASE is empty when the daemon did not start.
append_line() {
  python3 - "$run_dir" "$out" "$model" "$(nproc)" "$@" <<'PYTHON'
import datetime
import json
import re
import sys
from pathlib import Path

folder, out, model, cores, ranks, mode, case = sys.argv[1:]


def text_of(name):
    path = Path(folder, name)
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def refusal():
    """gemmad's own sentence; else what the launcher or mpirun said."""
    log = text_of("gemmad.log")
    for sentence in (r"critical: (?:cannot start: )?(.+)", r"^(?:gemmad|launch): (.+)",
                     r"^mpirun noticed that (.+)"):
        found = re.findall(sentence, log, re.M)
        if found:
            return found[-1][:500]
    return " ".join(re.sub(r"^-+$", "", log, flags=re.M).split())[:200] or "it ended without a word"


name, _, cut = mode.partition(":")
strategy, _, ranks_per_replica = cut.partition(":")
info = json.loads(text_of("info.json") or "{}")
line = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "mode": name, "strategy": strategy or None, "ranks": int(ranks),
        "ranks_per_replica": int(ranks_per_replica or 0), "encoder_ranks": None, "model": model,
        "case": case or None, "cores": int(cores), "devices": None}
if info:
    line.update(ranks_per_replica=info["ranks_per_replica"],
                encoder_ranks=info["encoder_ranks"] or list(range(int(ranks))),
                devices=sorted({rank["device"] for rank in info["ranks"]}), version=info["version"])
    if name == "sharded":
        line["strategy"] = info["strategy"]
    try:
        bench = json.loads(text_of("bench.json"))
        line.update(bench)
        times = bench["request_ms"]
        shown = f"{bench['failed']} failed"
        if times and not bench["failed"]:
            shown = (f"p50 {times['p50']:.1f} ms, p99 {times['p99']:.1f} ms, "
                     f"{bench['per_second']['tokens']:.0f} tokens/s")
    except ValueError:
        line["error"] = text_of("bench.err").strip()[:500]
        shown = line["error"]
else:
    line["refused"] = refusal()
    shown = "refused: " + line["refused"]
with open(out, "a", encoding="utf-8") as file:
    file.write(json.dumps(line, ensure_ascii=False) + "\n")
print(f"ranks {ranks}, {mode}{', ' + case if case else ''}: {shown}")
PYTHON
}

write_config() {
  local name strategy ranks_per_replica
  IFS=: read -r name strategy ranks_per_replica <<<"$1"
  {
    printf '{"mode": "%s"' "$name"
    [[ -z $strategy ]] || printf ', "strategy": "%s"' "$strategy"
    [[ -z $ranks_per_replica ]] || printf ', "ranks_per_replica": %s' "$ranks_per_replica"
    printf '}\n'
  } >"$run_dir/config.json"
}

# start_daemon RANKS MODE. False when it ended before it was ready; the log tells.
start_daemon() {
  write_config "$2"
  bash "$root/scripts/launch.sh" -n "$1" --build "$build" "${launch_options[@]}" \
    --config "$run_dir/config.json" --model "$model" --socket "$run_dir/control.sock" "${gemmad_options[@]}" \
    </dev/null >"$run_dir/gemmad.log" 2>&1 &
  daemon=$!
  "$build/daemon/ctl/gemmactl" --socket "$run_dir/control.sock" --wait-ready 1800 info --json \
    </dev/null >"$run_dir/info.json" 2>/dev/null &
  client=$!
  local status=0
  wait -n "$daemon" "$client" || status=$?
  if ((status == 0)) && kill -0 "$daemon" 2>/dev/null; then
    client=""
    return 0
  fi
  kill -KILL "$client" 2>/dev/null || true
  wait "$client" 2>/dev/null || true
  client=""
  end_daemon 300
  : >"$run_dir/info.json"
  return 1
}

run_combination() {
  local ranks=$1 mode=$2 case
  if ! start_daemon "$ranks" "$mode"; then
    append_line "$ranks" "$mode" ""
    return
  fi
  for case in $cases; do
    gemmactl bench --tokens "$case" --requests "$requests" "${bench_options[@]}" --json \
      >"$run_dir/bench.json" 2>"$run_dir/bench.err" || all_well=false
    append_line "$ranks" "$mode" "$case"
    [[ ! -s $run_dir/bench.json ]] || cat "$run_dir/bench.err" >&2
  done
  end_daemon 300
}

read_options() {
  while (($#)); do
    case $1 in
      --model) needs_value "$@"; model=$2; shift 2 ;;
      --ranks) needs_value "$@"; ranks_list=$2; shift 2 ;;
      --modes) needs_value "$@"; modes=$2; shift 2 ;;
      --cases) needs_value "$@"; cases=$2; shift 2 ;;
      --requests) needs_value "$@"; requests=$2; shift 2 ;;
      --set) needs_value "$@"; gemmad_options+=(--set "$2"); shift 2 ;;
      --oversubscribe) launch_options+=(--oversubscribe); shift ;;
      --build) needs_value "$@"; build=$2; shift 2 ;;
      --out) needs_value "$@"; out=$2; shift 2 ;;
      --) shift; bench_options=("$@"); break ;;
      -h | --help) usage; exit 0 ;;
      *) die "unknown option '$1'; see --help" ;;
    esac
  done
  local word
  [[ -n $model ]] || die "--model DIR is missing; see --help"
  [[ -f $model/config.json ]] || die "--model $model: there is no config.json in it"
  model=$(cd "$model" && pwd)
  for word in $ranks_list; do
    [[ $word =~ ^[1-9][0-9]{0,3}$ ]] || die "--ranks: '$word' is not a number from 1 to 9999"
  done
  for word in $modes; do
    [[ $word =~ ^[a-z_]+(:[a-z_]+(:[0-9]{1,4})?)?$ ]] ||
      die "--modes: '$word' is not MODE[:STRATEGY[:RANKS_PER_REPLICA]]"
  done
  for word in $cases; do
    [[ $word =~ ^([0-9]+x)?[0-9]+(,([0-9]+x)?[0-9]+)*$ ]] ||
      die "--cases: '$word' is not a list of token counts"
  done
  [[ $requests =~ ^[1-9][0-9]{0,8}$ ]] || die "--requests: '$requests' is not a number from 1 to 999999999"
  for word in daemon/gemmad daemon/ctl/gemmactl; do
    [[ -x $build/$word ]] || die "$build/$word is not there: build it first (scripts/quickstart.sh does)"
  done
  : >>"$out" || die "--out $out: cannot be written"
}

main() {
  local ranks mode
  read_options "$@"
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  run_dir=$(mktemp -d "${TMPDIR:-/tmp}/gemmad-bench.XXXXXX")  # mktemp makes it 0700, as the socket needs
  for ranks in $ranks_list; do
    for mode in $modes; do
      run_combination "$ranks" "$mode"
    done
  done
  echo "results: $out"
  [[ $all_well == true ]]
}

main "$@"
