#!/usr/bin/env python3
"""Makes one table of what scripts/gpu_check.sh measured, and keeps the figures. Standard library only.

Reads speed.jsonl, accuracy.jsonl, shares-*.log (of stage_bench), sums-*.log (of peer_sum_bench) and peer-*.log of a folder,
as far as they are there. Writes gpu_check.md there and prints it; puts a line of JSON for each case into baseline.jsonl
there and into BASELINES/GPU-NAME.jsonl, in place of those of the same measurement where the table is made again.

Floors are the largest of three times. Weights: all but the embedding, once, cut over the ranks of a replica where these
share layers (tensor), and after them what a rank computes of the states of the first 128 tokens, since only those of
more go out while others are computed. Products: of the replica with most prompts, shared by its ranks; in layer n stages work
on p prompts one after the other, for (p + n - 1) / (p n) of one GPU's time. States: what a rank puts into its segment:
all prompts' with segments per_rank, its own replica's with per_node. The last state alone counts as nothing. Adaptive has
the smaller floor of tensor and batch_parallel.
"""

import argparse
import datetime
import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

LAYERS_OF_FLOORS, GPU_OF_FLOORS = 48, "H200"
WEIGHTS_MS = 21.5e9 / 4.26e12 * 1e3             # all of them, without the embedding
PRODUCTS_MS = 2 * 10.77e9 / 790e12 * 1e3        # of a token
STATES_MS = (48 + 1) * 3840 * 2 / 55e9 * 1e3    # of a token, to host memory
TOKENS_AFTER_WEIGHTS = 128
WEIGHTS, WEIGHTS_STATES, PRODUCTS, STATES = "weights", "weights, states", "products", "states"
RATES = ("Floors come from rates measured on H200s: weights (21.5 GB without the embedding, split in tensor) read at "
         "4.26 TB/s, products at 790 TFLOP/s, states to host memory at 55 GB/s a GPU; exchanges between GPUs count as nothing.")
COLUMN_NOTES = ("x 1 GPU: times as fast as one GPU in the same run. sums: the share of compute that a rank's slice alone, on one "
                "GPU and delivering nothing, does not take: sums over the GPUs, and waiting.")
WAYS_OF_ADAPTIVE = ("tensor", "batch_parallel")
HYBRID = re.compile(r"tensor (\d+) x (\d+)")  # replicas, and the ranks of each
LTX_MODES = {"one rank": ("batch",), "tensor": ("accelerate",), "layer": ("accelerate",), "batch_parallel": ("batch",)}
LTX_ALL_MODES = ("accelerate", "batch")
COLUMNS = ("GPUs", "mode", "segments", "prompts", "states", "ms", "p10", "p90", "rested", "compute", "deliver", "floor", "share",
           "x 1 GPU", "sums", "PyTorch eager", "compiled", "LTX-2")


@dataclass
class Peers:
    """What others take: PyTorch on one GPU by case, and LTX-2's way by GPUs, its mode and the prompts' lengths."""

    eager: dict[str, float] = field(default_factory=dict)
    compiled: dict[str, float] = field(default_factory=dict)
    ltx: dict[tuple, dict] = field(default_factory=dict)

    def add(self, line: dict) -> None:
        if "encode_ms_median" in line:
            self.ltx[line["world"], line["mode"], tuple(line["lens"])] = line
            return
        for name, ms in line.items():
            way, _, case = name.partition(" ")
            {"eager": self.eager, "compile": self.compiled}.get(way, {})[case] = ms

    def of(self, record: dict) -> dict[str, float | None]:
        """Beside a case of the daemon. PyTorch's are forward passes; LTX-2's too where only the last state is asked for."""
        alone = record["ranks"] == 1 and record["states"] != "embeddings"
        times = [self.ltx_ms(record, mode) for mode in LTX_MODES.get(record["mode"], LTX_ALL_MODES)]
        return {"eager_ms": self.eager.get(record["case"]) if alone else None,
                "compiled_ms": self.compiled.get(record["case"]) if alone else None,
                "ltx_ms": min((ms for ms in times if ms is not None), default=None)}

    def ltx_ms(self, record: dict, mode: str) -> float | None:
        prompts, tokens = prompts_of(record)
        if record["states"] == "last" and mode == "batch" and prompts > 1:
            return None  # its forward pass alone is timed with one prompt
        line = self.ltx.get((record["ranks"], mode, (tokens,) * prompts))
        field = {"all": "encode_ms_median", "last": "forward_only_ms"}.get(record["states"])
        return line and line.get(field)


def prompts_of(record: dict) -> tuple[int, int]:
    """How many, and the tokens of each."""
    prompts, tokens = record["case"].split("x")
    return int(prompts), int(tokens)


@dataclass(frozen=True)
class Split:
    """Of a mode: replicas, the ranks that share every layer of one, and the stages of layers that follow each other."""

    replicas: int = 1
    ranks: int = 1
    stages: int = 1

    def own_prompts(self, prompts: int) -> int:
        """Of the replica with most."""
        return -(-prompts // self.replicas)


def split_of(mode: str, ranks: int) -> Split | None:
    if hybrid := HYBRID.fullmatch(mode):
        return Split(replicas=int(hybrid[1]), ranks=int(hybrid[2]))
    return {"one rank": Split(), "tensor": Split(ranks=ranks), "layer": Split(stages=ranks),
            "batch_parallel": Split(replicas=ranks)}.get(mode)


def floor_of(record: dict, mode: str) -> tuple[float, str] | None:
    """Least milliseconds of a record's case in a mode, and what takes them; see above."""
    split = split_of(mode, record["ranks"])
    if split is None or record["states"] not in ("all", "last"):
        return None
    prompts, tokens = prompts_of(record)
    own, stages = split.own_prompts(prompts), split.stages
    state = STATES_MS if record["states"] == "all" else 0.0
    written = prompts if record["segments"] == "per_rank" else own / stages
    after = state / stages * min(own * tokens, TOKENS_AFTER_WEIGHTS)
    return max((WEIGHTS_MS / split.ranks + after, WEIGHTS_STATES if state else WEIGHTS),
               (PRODUCTS_MS * own * tokens / split.ranks * (own + stages - 1) / (own * stages), PRODUCTS),
               (state * written * tokens, STATES))


@dataclass(frozen=True)
class Facts:
    """Of the machine and the run."""

    gpu: str
    driver: str
    commit: str
    command: str
    layers: int
    date: str

    def floor(self, record: dict) -> tuple[float, str] | None:
        if GPU_OF_FLOORS not in self.gpu or self.layers != LAYERS_OF_FLOORS:
            return None
        modes = WAYS_OF_ADAPTIVE if record["mode"] == "adaptive" else (record["mode"],)
        return min((floor for mode in modes if (floor := floor_of(record, mode))), default=None)


@dataclass
class Measured:
    """All that stands beside a case of the daemon."""

    peers: Peers = field(default_factory=Peers)
    # Milliseconds of a pass of a slice alone, by layers, slices and the prompts' lengths as stage_bench has them.
    shares: dict[tuple[int, int, str], float] = field(default_factory=dict)
    # Of one GPU, by case and states.
    one_gpu: dict[tuple[str, str], float] = field(default_factory=dict)
    # The tables of peer_sum_bench: GPUs before each row.
    sums_head: tuple[str, ...] = ()
    sums: list[list[str]] = field(default_factory=list)

    def add_shares(self, text: str) -> None:
        what = re.search(r", (\d+) layers, 1 of (\d+) slices", text)
        if what is None:
            return
        for lengths, ms in re.findall(r"^ *(\d+(?:\+\d+)*) +(\d+\.\d+)\b", text, re.MULTILINE):
            self.shares[int(what[1]), int(what[2]), lengths] = float(ms)

    def add_sums(self, ranks: str, text: str) -> None:
        for line in text.splitlines():
            cells = re.split(r"\s{2,}", line.strip())
            if cells[0] == "rows":
                self.sums_head = ("GPUs", *cells)
            elif len(cells) + 1 == len(self.sums_head) and all(re.fullmatch(r"\d+(\.\d+)?", cell) for cell in cells):
                self.sums.append([ranks, *cells])

    def speed_up(self, record: dict) -> float | None:
        """How many times as fast as one GPU."""
        alone = self.one_gpu.get((record["case"], record["states"]))
        return alone / record["median_ms"] if alone and record["ranks"] > 1 and record["median_ms"] > 0 else None

    def sums_share(self, record: dict, layers: int) -> float | None:
        """What of the daemon's own time a slice alone does not take."""
        split, compute = split_of(record["mode"], record["ranks"]), record["stages_ms"]["compute"]
        if split is None or split.ranks < 2 or record["states"] == "embeddings" or compute <= 0:
            return None
        prompts, tokens = prompts_of(record)
        ms = self.shares.get((layers, split.ranks, "+".join([str(tokens)] * split.own_prompts(prompts))))
        return None if ms is None else 1 - ms / compute

    def of(self, record: dict, facts: Facts) -> dict[str, float | str | None]:
        floor = facts.floor(record)
        rounded = {"floor_ms": (floor[0] if floor else None, 3),
                   "floor_share": (floor[0] / record["median_ms"] if floor and record["median_ms"] > 0 else None, 3),
                   "x_one_gpu": (self.speed_up(record), 3), "sums_share": (self.sums_share(record, facts.layers), 3)}
        return {"floor_of": floor[1] if floor else None,
                **{key: None if value is None else round(value, digits) for key, (value, digits) in rounded.items()}}


def json_lines(text: str) -> list[dict]:
    """The lines that are JSON objects; others, such as warnings, are passed over."""
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def read_lines(file: Path) -> list[dict]:
    return json_lines(file.read_text(errors="replace")) if file.exists() else []


def rank_logs(folder: Path, name: str) -> list[tuple[str, str]]:
    """GPUs and text of each NAME-GPUS.log."""
    files = [(file.stem.rpartition("-")[2], file) for file in folder.glob(f"{name}-*.log")]
    return [(ranks, file.read_text(errors="replace")) for ranks, file in sorted(files, key=lambda each: (len(each[0]), each[0]))]


def read_measured(folder: Path, speed: list[dict]) -> Measured:
    measured = Measured(one_gpu={(line["case"], line["states"]): line["median_ms"] for line in speed
                                 if line["kind"] == "speed" and line["ranks"] == 1})
    for file in sorted(folder.glob("peer-*.log")):
        for line in read_lines(file):
            measured.peers.add(line)
    for _, text in rank_logs(folder, "shares"):
        measured.add_shares(text)
    for ranks, text in rank_logs(folder, "sums"):
        measured.add_sums(ranks, text)
    return measured


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 20 else f"{value:.2f}"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def row(record: dict, facts: Facts, measured: Measured) -> list[str]:
    found, peers, stages = measured.of(record, facts), measured.peers.of(record), record["stages_ms"]
    times = [record["median_ms"], record["p10_ms"], record["p90_ms"], record.get("rested_ms"), stages["compute"],
             stages["deliver"]]
    bound = "-" if found["floor_ms"] is None else f"{number(found['floor_ms'])} {found['floor_of']}"
    return [str(record["ranks"]), record["mode"], record["segments"], record["case"], record["states"],
            *map(number, times), bound, percent(found["floor_share"]), number(found["x_one_gpu"]), percent(found["sums_share"]),
            *map(number, peers.values())]


def markdown(rows: list[list[str]], head: tuple[str, ...]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def adaptive_lines(records: list[dict]) -> list[str]:
    """How adaptive does against the better of its two ways."""
    times = {(r["ranks"], r["segments"], r["case"], r["states"], r["mode"]): r["median_ms"] for r in records}
    found = []
    for (*case, mode), ms in times.items():
        better = [times[key] for way in WAYS_OF_ADAPTIVE if (key := (*case, way)) in times]
        if mode == "adaptive" and len(better) == len(WAYS_OF_ADAPTIVE):
            ranks, segments, prompts, states = case
            what = segments if states == "all" else f"{segments}, {states}"
            found.append(f"{ranks} GPUs {prompts} ({what}) {ms / min(better):.2f}")
    return found


def document(facts: Facts, speed: list[dict], accuracy: list[dict], measured: Measured) -> str:
    records = [line for line in speed if line["kind"] == "speed"]
    parts = [f"{facts.gpu}, driver {facts.driver}, {facts.date}, commit {facts.commit}: `{facts.command}`"]
    if records:
        parts.append(f"Gemma 3 12B's layer sizes, {facts.layers} layers, bf16, random weights. Milliseconds from request to "
                     "reply, when every rank has published; medians; rested: with a pause of 0.7 s before each request. "
                     "Embeddings: LTX-2.3's, which neither of the others computes here. PyTorch: forward pass alone. LTX-2 "
                     "pads to 1024 tokens.")
        parts.append(markdown([row(record, facts, measured) for record in records], COLUMNS))
        if any(facts.floor(record) for record in records):
            parts.append(RATES)
        if any(record["ranks"] > 1 for record in records):
            parts.append(COLUMN_NOTES)
        if adaptive := adaptive_lines(records):
            parts.append("adaptive, times the better of its two ways: " + ", ".join(adaptive) + ".")
    if measured.sums:
        parts.append("A sum over the GPUs with the residual add and both norms, us a call in recorded work, [rows, 3840]: without "
                     "a sum, over peer memory in one step and in two, and NCCL's with the same kernel after it:")
        parts.append(markdown(measured.sums, measured.sums_head))
    if accuracy:
        rows = [[line["part"], line["layout"], line["summary"], "pass" if line["passed"] else "FAIL"] for line in accuracy]
        parts.append("Errors against float64, as a ratio to those of transformers in bf16, of features and embeddings to those of "
                     "LTX-2's own steps in bf16 (limit 1.15):")
        parts.append(markdown(rows, ("part", "layout", "found", "")))
    parts += [f"FAILED: {line['error']} ({line['ranks']} GPUs, {line['segments']})" for line in speed if line["kind"] == "error"]
    return "\n\n".join(parts) + "\n"


def baseline_lines(facts: Facts, speed: list[dict], measured: Measured) -> list[dict]:
    kept = ("ranks", "mode", "segments", "case", "states", "requests", "median_ms", "p10_ms", "p90_ms", "rested_ms",
            "rested_compute_ms", "stages_ms", "cuts")
    return [{"date": facts.date, "gpu": facts.gpu, "driver": facts.driver, "commit": facts.commit, "layers": facts.layers,
             **{key: record[key] for key in kept if key in record}, **measured.of(record, facts),
             "peers": measured.peers.of(record), "command": facts.command}
            for record in speed if record["kind"] == "speed"]


def file_name(gpu: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-") + ".jsonl"


def keep(file: Path, lines: list[dict]) -> None:
    """Adds lines to a file, in place of those of the same date."""
    dates = {line["date"] for line in lines}
    old = [line for line in read_lines(file) if line["date"] not in dates]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in old + lines))


def date_of(file: Path) -> str:
    """When the figures were measured; now if there are none."""
    moment = datetime.datetime.now(datetime.timezone.utc)
    if file.exists():
        moment = datetime.datetime.fromtimestamp(file.stat().st_mtime, datetime.timezone.utc)
    return moment.isoformat(timespec="seconds")


def parse_arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the measurements are")
    parser.add_argument("--baselines", type=Path, help="folder for the figures of each kind of GPU (default: not kept)")
    for name in ("gpu", "driver", "commit", "command"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--layers", type=int, required=True)
    return parser.parse_args(words)


def main() -> int:
    arguments = parse_arguments()
    folder = arguments.folder
    facts = Facts(arguments.gpu, arguments.driver, arguments.commit, arguments.command, arguments.layers,
                  date_of(folder / "speed.jsonl"))
    speed = read_lines(folder / "speed.jsonl")
    measured = read_measured(folder, speed)
    text = document(facts, speed, read_lines(folder / "accuracy.jsonl"), measured)
    (folder / "gpu_check.md").write_text(text)
    print(text)
    if lines := baseline_lines(facts, speed, measured):
        keep(folder / "baseline.jsonl", lines)
        if arguments.baselines:
            keep(arguments.baselines / file_name(facts.gpu), lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
