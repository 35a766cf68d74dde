#!/usr/bin/env python3
"""Makes one table of what scripts/gpu_check.sh measured, and keeps the figures. Standard library only.

Reads speed.jsonl, accuracy.jsonl and peer-*.log of a folder, as far as they are there. Writes gpu_check.md there and
prints it; puts a line of JSON for each case into baseline.jsonl there and into BASELINES/GPU-NAME.jsonl, in place of
those of the same measurement where the table is made again.
"""

import argparse
import datetime
import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

LAYERS_OF_FLOORS, GPU_OF_FLOORS = 48, "H200"
# Least milliseconds of a case on H200s, by GPUs, mode, prompts and states, and what takes them. With many tokens the
# states go out while the products are computed.
WEIGHTS, WEIGHTS_STATES, PRODUCTS = "weights", "weights, states", "products"
RATES = ("Floors come from rates measured on these GPUs: weights (21.5 GB without the embedding, split in tensor) read at "
         "4.26 TB/s, products at 790 TFLOP/s, states to host memory at 55 GB/s; exchanges between GPUs count as nothing.")
FLOORS = {
    (1, "one rank", "1x16", "all"): (5.2, WEIGHTS_STATES),
    (1, "one rank", "1x128", "all"): (5.9, WEIGHTS_STATES),
    (1, "one rank", "1x128", "last"): (5.05, WEIGHTS),
    (1, "one rank", "2x128", "all"): (7.0, PRODUCTS),
    (1, "one rank", "1x1024", "all"): (28.0, PRODUCTS),
    (1, "one rank", "2x1024", "all"): (57.0, PRODUCTS),
    (1, "one rank", "2x1024", "last"): (57.0, PRODUCTS),
    (2, "tensor", "1x128", "all"): (3.4, WEIGHTS_STATES),
    (2, "tensor", "1x128", "last"): (2.5, WEIGHTS),
    (2, "tensor", "2x128", "all"): (3.5, PRODUCTS),
    (2, "tensor", "2x1024", "all"): (28.0, PRODUCTS),
    (2, "batch_parallel", "1x128", "all"): (5.9, WEIGHTS_STATES),
    (2, "batch_parallel", "2x128", "all"): (5.9, WEIGHTS_STATES),
    (2, "batch_parallel", "2x1024", "all"): (28.0, PRODUCTS),
}
WAYS_OF_ADAPTIVE = ("tensor", "batch_parallel")
LTX_MODES = {"one rank": "batch", "tensor": "accelerate", "batch_parallel": "batch"}
COLUMNS = ("GPUs", "mode", "segments", "prompts", "states", "ms", "p10", "p90", "rested", "compute", "deliver", "floor", "share",
           "PyTorch eager", "compiled", "LTX-2")


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
        times = [self.ltx_ms(record, mode) for mode in ways_of(record["mode"])]
        return {"eager_ms": self.eager.get(record["case"]) if alone else None,
                "compiled_ms": self.compiled.get(record["case"]) if alone else None,
                "ltx_ms": min((ms for ms in times if ms is not None), default=None)}

    def ltx_ms(self, record: dict, mode: str) -> float | None:
        prompts, tokens = map(int, record["case"].split("x"))
        line = self.ltx.get((record["ranks"], LTX_MODES[mode], (tokens,) * prompts))
        field = {"all": "encode_ms_median", "last": "forward_only_ms"}.get(record["states"])
        return line and line.get(field)


def ways_of(mode: str) -> tuple[str, ...]:
    return WAYS_OF_ADAPTIVE if mode == "adaptive" else (mode,)


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
        floors = [FLOORS.get((record["ranks"], mode, record["case"], record["states"])) for mode in ways_of(record["mode"])]
        return min((floor for floor in floors if floor), default=None)


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


def read_peers(folder: Path) -> Peers:
    peers = Peers()
    for file in sorted(folder.glob("peer-*.log")):
        for line in read_lines(file):
            peers.add(line)
    return peers


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 20 else f"{value:.2f}"


def row(record: dict, facts: Facts, peers: Peers) -> list[str]:
    floor, beside, stages = facts.floor(record), peers.of(record), record["stages_ms"]
    times = [record["median_ms"], record["p10_ms"], record["p90_ms"], record.get("rested_ms"), stages["compute"],
             stages["deliver"]]
    share = f"{100 * floor[0] / record['median_ms']:.0f} %" if floor else "-"
    bound = f"{number(floor[0])} {floor[1]}" if floor else "-"
    return [str(record["ranks"]), record["mode"], record["segments"], record["case"], record["states"],
            *map(number, times), bound, share, *map(number, beside.values())]


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
            found.append(f"{case[2]} ({case[1]}) {ms / min(better):.2f}")
    return found


def document(facts: Facts, speed: list[dict], accuracy: list[dict], peers: Peers) -> str:
    records = [line for line in speed if line["kind"] == "speed"]
    parts = [f"{facts.gpu}, driver {facts.driver}, {facts.date}, commit {facts.commit}: `{facts.command}`"]
    if records:
        parts.append(f"Gemma 3 12B's layer sizes, {facts.layers} layers, bf16, random weights. Milliseconds from request to "
                     "reply, when every rank has published; medians; rested: with a pause of 0.7 s before each request. "
                     "Embeddings: LTX-2.3's, which neither of the others computes here. PyTorch: forward pass alone. LTX-2 "
                     "pads to 1024 tokens.")
        parts.append(markdown([row(record, facts, peers) for record in records], COLUMNS))
        if any(facts.floor(record) for record in records):
            parts.append(RATES)
        if adaptive := adaptive_lines(records):
            parts.append("adaptive, times the better of its two ways: " + ", ".join(adaptive) + ".")
    if accuracy:
        rows = [[line["part"], line["layout"], line["summary"], "pass" if line["passed"] else "FAIL"] for line in accuracy]
        parts.append("Errors against float64, as a ratio to those of transformers in bf16, of features and embeddings to those of "
                     "LTX-2's own steps in bf16 (limit 1.15):")
        parts.append(markdown(rows, ("part", "layout", "found", "")))
    parts += [f"FAILED: {line['error']} ({line['ranks']} GPUs, {line['segments']})" for line in speed if line["kind"] == "error"]
    return "\n\n".join(parts) + "\n"


def baseline_lines(facts: Facts, speed: list[dict], peers: Peers) -> list[dict]:
    kept = ("ranks", "mode", "segments", "case", "states", "requests", "median_ms", "p10_ms", "p90_ms", "rested_ms", "rested_compute_ms", "stages_ms", "cuts")
    return [{"date": facts.date, "gpu": facts.gpu, "driver": facts.driver, "commit": facts.commit, "layers": facts.layers,
             **{key: record[key] for key in kept if key in record}, "peers": peers.of(record), "command": facts.command}
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
    parser.add_argument("--baselines", type=Path, required=True, help="folder for the figures of each kind of GPU")
    for name in ("gpu", "driver", "commit", "command"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--layers", type=int, required=True)
    return parser.parse_args(words)


def main() -> int:
    arguments = parse_arguments()
    folder = arguments.folder
    facts = Facts(arguments.gpu, arguments.driver, arguments.commit, arguments.command, arguments.layers,
                  date_of(folder / "speed.jsonl"))
    speed, peers = read_lines(folder / "speed.jsonl"), read_peers(folder)
    text = document(facts, speed, read_lines(folder / "accuracy.jsonl"), peers)
    (folder / "gpu_check.md").write_text(text)
    print(text)
    if lines := baseline_lines(facts, speed, peers):
        keep(folder / "baseline.jsonl", lines)
        keep(arguments.baselines / file_name(facts.gpu), lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
