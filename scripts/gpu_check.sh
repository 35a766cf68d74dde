#!/usr/bin/env bash
# Checks and times gemmad on a machine with NVIDIA GPUs, and compares it with Hugging Face transformers.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
all_parts="build tests accuracy speed shares enhance peers"
parts=$all_parts quick=false build=$root/build/release out=$root/build/gpu_check
peers="" layers=48 requests=30 commit="" ranks_wanted=""
failed=() left_out=() without=()

usage() {
  cat <<TEXT
usage: gpu_check.sh [OPTION]...

Parts, one after the other; only one of them uses the GPUs at a time. What is measured is measured on 1, 2, 4 and 8 of
them, as far as there are as many:
  build     the preset 'release' with GEMMAD_CUDA=ON
  tests     ctest -L gpu
  accuracy  hidden states against float64 and transformers, features and embeddings against float64 and LTX-2's bf16
            (tests/bench/gpu_accuracy.py; needs 7 GB in the temporary folder)
  speed     from request to reply, in every mode (tests/bench/gpu_speed.py)
  shares    a rank's slice of the model alone on one GPU (stage_bench), and sums over the GPUs (peer_sum_bench)
  enhance   prompts that are continued, and encodes beside them (tests/bench/gpu_enhance.py); to the screen and its logs
  peers     PyTorch on 1 GPU; LTX-2's ways of encoding on 1 and on the most that are measured, some batches on 2
Then a table of all that lies in --out, also as Markdown, and after the part speed a line of JSON for each case in
tests/bench/baselines/.

  --ranks LIST     some of 1,2,4,8 for all parts but build and tests (default: those that there are GPUs for)
  --only LIST      some of the parts, with commas: $(tr ' ' ',' <<<"$all_parts")
  --no-build       all parts but build
  --quick          fewer requests and lengths, no deep model, no peers
  --peers DIR      where peer_best.py and peer_ltx.py are (default: ../shared/bench beside this source tree, if it is there)
  --layers N       layers of the model that is timed (default $layers)
  --requests N     requests of a case (default $requests)
  --out DIR        where logs, figures and gpu_check.md go (default: build/gpu_check of this source tree)
  --build-dir DIR  folder of the build (default: build/release of this source tree)
  --commit NAME    what the figures are labelled with (default: git's)

Needs python3 with torch, transformers, accelerate, safetensors and numpy for accuracy and peers.
Exit status: 0 when all went well, 1 when a part failed, 2 for wrong use.
TEXT
}

die() {
  echo "gpu_check: $1" >&2
  exit 2
}

# Of an option and what follows it.
needs_value() {
  [[ -n ${2:-} ]] || die "$1 needs a value; see --help"
}

step() { printf '== [%4d s] %s\n' "$SECONDS" "$1"; }

# part NAME SECONDS COMMAND...: remembers what failed, or took longer. The output goes to the screen and to NAME.log.
part() {
  local name=$1 seconds=$2 status=0
  shift 2
  step "$name"
  timeout --foreground --kill-after=30 "$seconds" "$@" 2>&1 | tee "$out/$name.log" || status=$?
  ((status == 0)) && return
  if ((status == 77)); then
    left_out+=("$name (this machine has not what it needs)")
    return
  fi
  ((status != 124)) || echo "gpu_check: $name took more than $seconds s"
  failed+=("$name")
}

wanted() { [[ " $parts " == *" $1 "* ]]; }

read_options() {
  command=$(printf '%q ' scripts/gpu_check.sh "$@")
  while (($#)); do
    case $1 in
      --only) needs_value "$@"; parts=$(tr ',' ' ' <<<"$2"); shift 2 ;;
      --no-build) without+=(build); shift ;;
      --quick) quick=true without+=(peers); shift ;;
      --peers)
        needs_value "$@"
        peers=$(cd "$2" 2>/dev/null && pwd) || die "--peers: no folder $2"
        shift 2
        ;;
      --layers) needs_value "$@"; layers=$2; shift 2 ;;
      --ranks) needs_value "$@"; ranks_wanted=$(tr ',' ' ' <<<"$2"); shift 2 ;;
      --requests) needs_value "$@"; requests=$2; shift 2 ;;
      --out) needs_value "$@"; out=$2; shift 2 ;;
      --build-dir) needs_value "$@"; build=$2; build=$(realpath -m "$build"); shift 2 ;;
      --commit) needs_value "$@"; commit=$2; shift 2 ;;
      -h | --help) usage; exit 0 ;;
      *) die "unknown option '$1'; see --help" ;;
    esac
  done
  local word left=""
  for word in $parts; do
    [[ " $all_parts " == *" $word "* ]] || die "--only: no part '$word'; see --help"
    [[ " ${without[*]} " == *" $word "* ]] || left+=" $word"
  done
  parts=${left# }
  for word in $ranks_wanted; do
    [[ $word =~ ^[1248]$ ]] || die "--ranks: '$word' is none of 1, 2, 4 and 8"
  done
  [[ $layers =~ ^[1-9][0-9]{0,2}$ ]] || die "--layers: '$layers' is not a number from 1 to 999"
  [[ $requests =~ ^[1-9][0-9]{0,4}$ ]] || die "--requests: '$requests' is not a number from 1 to 99999"
}

has_ranks() { [[ " ${rank_counts[*]} " == *" $1 "* ]]; }

# limit ONE MORE COUNT...: seconds, ONE for a single rank and MORE for every other count.
limit() {
  local one=$1 more=$2 sum=0 count
  shift 2
  for count; do
    ((count == 1)) && sum=$((sum + one)) || sum=$((sum + more))
  done
  echo "$sum"
}

# What the machine and the tree are.
look_around() {
  local all
  all=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null) || all=""
  [[ -n $all ]] || die "there is no NVIDIA GPU here, or no nvidia-smi"
  gpus=$(wc -l <<<"$all")
  if [[ -n ${CUDA_VISIBLE_DEVICES:-} ]]; then gpus=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .); fi
  IFS=, read -r gpu driver <<<"$all"
  driver=${driver# }
  [[ -n $commit ]] || commit=$(git -C "$root" describe --always --dirty 2>/dev/null) || commit=unknown
  if [[ -z $peers && -d $root/../shared/bench ]]; then peers=$(cd "$root/../shared/bench" && pwd); fi
  mkdir -p "$out"
  out=$(cd "$out" && pwd)
  possible=() rank_counts=()
  local count
  for count in 1 2 4 8; do
    if ((count <= gpus)); then possible+=("$count"); fi
    [[ -z $ranks_wanted || " $ranks_wanted " == *" $count "* ]] || continue
    if ((count <= gpus)); then
      rank_counts+=("$count")
    else
      [[ -z $ranks_wanted ]] || die "--ranks: $count needs as many GPUs, and here are $gpus"
    fi
  done
  echo "$gpus x $gpu, driver $driver, commit $commit"
}

build_all() {
  (cd "$root" && cmake -B "$build" --preset release -DGEMMAD_CUDA=ON && cmake --build "$build" --parallel "$(nproc)")
}

run_build() {
  step "build"
  local status=0
  build_all >"$out/build.log" 2>&1 || status=$?
  ((status == 0)) && return
  tail -n 60 "$out/build.log"
  failed+=(build)
  finish
}

run_accuracy() {
  local words=(--layouts) count
  for count in "${rank_counts[@]}"; do
    ((count == 1)) && words+=(1) || words+=("$count:tensor" "$count:layer")
    ((count < 4)) || words+=("$count:tensor:2")
  done
  if [[ $quick == true ]]; then
    words+=(--quick --parts tiny random lengths processor)
  fi
  part accuracy "$(limit 300 480 "${rank_counts[@]}")" python3 "$root/tests/bench/gpu_accuracy.py" "${words[@]}" \
    --deep-layers "$layers" --out "$out/accuracy.jsonl"
}

# The lines of JSON are read again for the table, and are all that goes to the standard output.
run_speed() {
  local words=(--requests "$requests")
  [[ $quick == false ]] || words=(--requests $((requests < 10 ? requests : 10)) --large-requests 3)
  part speed "$(limit 150 330 "${rank_counts[@]}")" python3 "$root/tests/bench/gpu_speed.py" --ranks "${rank_counts[@]}" \
    --layers "$layers" "${words[@]}"
  cp "$out/speed.log" "$out/speed.jsonl"
}

run_shares() {
  local count words
  rm -f "$out"/shares-*.log "$out"/sums-*.log
  for count in "${rank_counts[@]}"; do
    part "shares-$count" 180 "$build/tests/bench/stage_bench" --slices "$count" --layers "$layers" \
      --tokens 128,128+128,1024,1024+1024 --rounds 20
    ((count > 1)) || continue
    # A rank that is told of too few cores yields its core while it waits.
    words=(-n "$count" --bind-to none)
    ((count <= $(nproc))) || words+=(--oversubscribe)
    part "sums-$count" 120 "${GEMMAD_E2E_MPIEXEC:-mpirun}" "${words[@]}" "$build/tests/bench/peer_sum_bench"
  done
}

run_enhance() {
  local ranks
  for ranks in "${rank_counts[@]}"; do
    part "enhance-$ranks" 300 python3 "$root/tests/bench/gpu_enhance.py" --ranks "$ranks" --layers "$layers" device=cuda \
      mode=sharded
  done
}

# run_ltx RANKS WAY PROMPTSxTOKENS...: LTX-2 in one of its ways of using several GPUs; on one it has but one. Every prompt
# becomes 1024 tokens long there, so that many of them take minutes.
run_ltx() {
  local ranks=$1 way=$2 batch prompts tokens lengths i visible
  shift 2
  # accelerate spreads a model over all GPUs that it sees, however few ranks there are.
  visible=$(cut -d, -f"1-$ranks" <<<"${CUDA_VISIBLE_DEVICES:-0,1,2,3,4,5,6,7}")
  for batch; do
    prompts=${batch%x*} tokens=${batch#*x}
    lengths=$tokens
    for ((i = 1; i < prompts; ++i)); do lengths+=,$tokens; done
    part "peer-ltx-$ranks-$way-$batch" $((prompts < 64 ? 120 : 240)) \
      env CUDA_VISIBLE_DEVICES="$visible" torchrun --nproc-per-node="$ranks" "$peers/peer_ltx.py" "$way" "$lengths"
  done
}

run_peers() {
  local most=${rank_counts[-1]} batches=(1x128 2x128 2x1024 8x1024 64x128)
  if [[ -z $peers ]]; then
    left_out+=("peers (no ../shared/bench; name a folder with --peers)")
    return
  fi
  rm -f "$out"/peer-*.log
  part peer-best 300 python3 "$peers/peer_best.py"
  if has_ranks 1; then run_ltx 1 batch "${batches[@]}"; fi
  if ((most > 1)); then
    run_ltx "$most" batch "${batches[@]}"
    run_ltx "$most" accelerate "${batches[@]}"
  fi
  if ((most > 2)) && has_ranks 2; then
    run_ltx 2 batch 2x128 2x1024
    run_ltx 2 accelerate 1x128 2x128 2x1024
  fi
}

# The last line, and the status.
finish() {
  ((${#left_out[@]} == 0)) || printf 'left out: %s\n' "${left_out[@]}"
  if ((${#failed[@]})); then
    echo "gpu_check: FAIL after $SECONDS s: ${failed[*]}; logs are in $out"
    exit 1
  fi
  echo "gpu_check: PASS in $SECONDS s: $parts; figures are in $out"
  exit 0
}

main() {
  read_options "$@"
  look_around
  export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
  export GEMMAD_E2E_GEMMAD=$build/daemon/gemmad GEMMAD_E2E_GEMMACTL=$build/daemon/ctl/gemmactl
  if ((EUID == 0)); then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
  if wanted build; then run_build; fi
  [[ -x $GEMMAD_E2E_GEMMAD ]] || die "$GEMMAD_E2E_GEMMAD is not there: run the part build"
  if wanted tests; then
    part tests "$(limit 240 300 "${possible[@]}")" ctest --test-dir "$build" -L '^gpu$' --no-tests=error --output-on-failure
  fi
  if wanted accuracy; then run_accuracy; fi
  if wanted speed; then run_speed; fi
  if wanted shares; then run_shares; fi
  if wanted enhance; then run_enhance; fi
  if wanted peers; then run_peers; fi
  step "table"
  local words=(--folder "$out" --gpu "$gpu" --driver "$driver" --commit "$commit" --layers "$layers" --command "${command% }")
  # Earlier figures of this folder keep what they were labelled with.
  if wanted speed; then words+=(--baselines "$root/tests/bench/baselines"); fi
  python3 "$root/tests/bench/gpu_table.py" "${words[@]}" || failed+=(table)
  finish
}

main "$@"
