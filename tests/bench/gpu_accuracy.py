#!/usr/bin/env python3
"""Holds the daemon's hidden states on GPUs against float64, with the error of Hugging Face transformers in bf16 as the
measure: layer by layer, all rows of all prompts together; and its features and embeddings, with LTX-2's error in bf16 as
the measure. Needs torch, transformers, safetensors and numpy.

Parts:
  tiny       the tiny models of tests/data, against their goldens; the measure is in reference-errors.json beside them
  random     random weights in the layer sizes of Gemma 3 12B, a few layers of it, against a float64 forward pass
  lengths    no NaN and no infinity for any length from 1 to 1024, and for batches of mixed lengths; in layouts but the
             first some of them
  processor  features and embeddings in the sizes of LTX-2 and of LTX-2.3, of random checkpoints (up to 6.3 GB in the
             temporary folder), against float64 from the daemon's own hidden states
  deep       all 48 layers, the daemon beside transformers, both bf16: shown, and only checked to be finite
Layouts: RANKS, or RANKS:tensor, RANKS:layer, RANKS:batch_parallel, RANKS:adaptive; of several replicas RANKS:tensor:EACH or
RANKS:layer:EACH, of so many ranks each. deep runs in the first one only.

Each part prints a table and ends with PASS or FAIL. The exit status is 1 when one failed.
"""

import argparse
import contextlib
import glob
import itertools
import json
import random
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy
import processor_accuracy
import torch
from gpu_daemon import ANSWER_S, LAYERS_12B, ROOT, GpuDaemon, ModelFolder, config_12b, setting, settings_of
from harness import Client, Reader, gemmactl
from modes import BATCH_PARALLEL, MODES, random_prompt, switch
from reference_model import Float64Model, check_generator, random_model, transformers_states
from safetensors import safe_open
from safetensors.torch import load_file

MODELS = ROOT / "tests" / "data" / "models"
LIMIT = 1.15
SINGLE_LENGTHS = (1, 2, 17, 128, 333, 1024)
MIXED_LENGTHS = (5, 64, 200, 1, 700, 31)
DEEP_LENGTHS = (1, 17, 128, 1024)
LONGEST = 1024
BATCH_TOKENS = 8192
TINY_SEGMENT_MIB, SEGMENT_MIB, DEEP_SEGMENT_MIB = 64, 512, 2048  # results of ranks that nobody reads stay a minute
PARTS = ("tiny", "random", "lengths", "processor", "deep")
EXPONENT_BITS = {"BF16": (numpy.uint16, 0x7f80), "F32": (numpy.uint32, 0x7f800000)}

States = list[torch.Tensor]  # of one prompt: one tensor a layer


@dataclass(frozen=True)
class Layout:
    ranks: int
    name: str
    mode: str  # of MODES
    ranks_per_replica: int

    @property
    def settings(self) -> dict:
        return {**MODES[self.mode], "ranks_per_replica": self.ranks_per_replica}


def layout(text: str) -> Layout:
    found = re.fullmatch(r"(\d+)(?::([a-z_]+)(?::(\d+))?)?", text)
    if found is None:
        raise ValueError(text)
    ranks, mode, each = found.groups()
    mode = mode or BATCH_PARALLEL["mode"]
    if mode not in MODES or each and MODES[mode]["mode"] != "sharded":
        raise ValueError(text)
    return Layout(int(ranks), text, mode, int(each or 0))


@dataclass
class Errors:
    """Squared differences from what was expected, by layer, summed over rows; and those of each prompt."""

    expected: list[float] = field(default_factory=list)
    off: list[float] = field(default_factory=list)
    by_prompt: list[list[float]] = field(default_factory=list)

    def add(self, found: States, expected: States) -> None:
        off, scale = [], []
        for found_layer, expected_layer in zip(found, expected, strict=True):
            wide = expected_layer.double()
            off.append((found_layer.to(wide.device).double() - wide).square().sum().item())
            scale.append(wide.square().sum().item())
        self.by_prompt.append([relative(*pair) for pair in zip(off, scale)])
        self.off = added(self.off, off)
        self.expected = added(self.expected, scale)

    def by_layer(self) -> list[float]:
        return [relative(*pair) for pair in zip(self.off, self.expected)]


def added(sums: list[float], more: list[float]) -> list[float]:
    return [a + b for a, b in zip(sums, more)] if sums else list(more)


def relative(off: float, scale: float) -> float:
    return (off / scale) ** 0.5 if scale > 0 else float("inf")


def errors_of(found: list[States], expected: list[States]) -> Errors:
    errors = Errors()
    for pair in zip(found, expected, strict=True):
        errors.add(*pair)
    return errors


def all_finite(prompts: list[States]) -> bool:
    return all(bool(layer.isfinite().all()) for states in prompts for layer in states)


def ratios(found: list[float], measure: list[float]) -> list[float]:
    return [a / b if b > 0 else (0.0 if a == 0 else float("inf")) for a, b in zip(found, measure, strict=True)]


class Report:
    """Lines for people to the screen, and a line of JSON for each finding to a file."""

    def __init__(self, file: Path | None):
        self.file = file
        self.failed = False
        self.begin = time.monotonic()
        if file:
            file.write_text("")

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.begin:4.0f} s] {text}", flush=True)

    def finding(self, part: str, name: str, passed: bool, summary: str, **fields) -> None:
        self.failed = self.failed or not passed
        self.say(f"{part}, {name}: {summary}: {'PASS' if passed else 'FAIL'}")
        if self.file:
            line = {"kind": "accuracy", "part": part, "layout": name, "passed": passed, "summary": summary, **fields}
            with self.file.open("a") as file:
                file.write(json.dumps(line) + "\n")

    def against_measure(self, part: str, name: str, found: Errors, measure: list[float], finite: bool) -> None:
        """Passes when no layer's error is above LIMIT times the measure."""
        layers, shares = found.by_layer(), ratios(found.by_layer(), measure)
        print("layer     daemon    HF bf16   ratio")
        for number, row in enumerate(zip(layers, measure, shares)):
            print("{:5d}  {:.3e}  {:.3e}  {:6.3f}".format(number, *row))
        worst = max(range(len(shares)), key=shares.__getitem__)
        self.finding(part, name, finite and shares[worst] <= LIMIT,
                     f"{'' if finite else 'NaN or infinity, '}worst ratio {shares[worst]:.3f} in layer {worst}",
                     worst_ratio=shares[worst], layer=worst, errors=layers, measure=measure, finite=finite)


class Encoder:
    """Encodes on one daemon and reads the results through gemmactl, from one rank after the other."""

    def __init__(self, daemon: GpuDaemon):
        self.daemon = daemon
        self.count = 0

    def encode(self, prompts: list) -> list[States]:
        """All hidden states of each prompt, which are texts or lists of ids."""
        request, saved = self.daemon.folder / "prompts.json", self.daemon.folder / "states.safetensors"
        request.write_text(json.dumps([{"input_ids": p} if isinstance(p, list) else p for p in prompts]))
        rank = self.count % self.daemon.ranks
        self.count += 1
        done = gemmactl(self.daemon, "encode", "--prompts-file", request, "--save", saved, "--rank", rank)
        if done.returncode != 0:
            raise AssertionError(f"gemmactl encode: {done.stdout}{done.stderr}")
        tensors = load_file(saved)
        saved.unlink()
        return [states_of(tensors, index) for index in range(len(prompts))]

    def encode_all(self, requests: list[list]) -> list[States]:
        return [states for prompts in requests for states in self.encode(prompts)]


def states_of(tensors: dict[str, torch.Tensor], prompt: int) -> States:
    prefix = f"prompt.{prompt}.hidden_states."
    num_states = sum(name.startswith(prefix) for name in tensors)
    return [tensors[f"{prefix}{layer}"] for layer in range(num_states)]


def requests_of(vocabulary: int, singles: tuple[int, ...], seed: int) -> list[list[list[int]]]:
    """A request for each single length, and one of mixed lengths."""
    generator = random.Random(seed)
    return [[random_prompt(generator, length, vocabulary)["input_ids"] for length in lengths]
            for lengths in [*((length,) for length in singles), MIXED_LENGTHS]]


@dataclass
class Check:
    """What all parts share."""

    layouts: list[Layout]
    layers: int
    deep_layers: int
    seed: int
    quick: bool
    device: str
    settings: dict
    report: Report
    config_file: Path | None
    processor_scale: str

    def config(self, layers: int) -> dict:
        if self.config_file is None:
            return config_12b(layers)
        return json.loads(self.config_file.read_text())

    def in_layouts(self, layouts: list[Layout], model, act: Callable[[Layout, GpuDaemon], None], **settings) -> None:
        """Calls act(layout, daemon) in each. Layouts of as many ranks that follow each other share a daemon."""
        for ranks, group in itertools.groupby(layouts, lambda where: where.ranks):
            first, *others = group
            self.report.say(f"a daemon in layout {first.name}")
            settings = {"device": self.device, **settings, **self.settings}
            with GpuDaemon(ranks, model, **settings, **first.settings) as daemon:
                act(first, daemon)
                for where in others:
                    with Client(daemon.socket, ANSWER_S) as client:
                        switch(client, **where.settings)
                    act(where, daemon)

    def in_layouts_of_random(self, layouts: list[Layout], config: dict, act: Callable[[Layout, GpuDaemon], None],
                             segment_mib: int, **settings) -> None:
        with ModelFolder(config) as folder:
            self.in_layouts(layouts, folder, act, weights="random", weights_seed=self.seed, segment_mib=segment_mib,
                            **settings)

    # The parts.

    def tiny(self) -> None:
        measures = json.loads((MODELS / "reference-errors.json").read_text())
        for name, measure in measures.items():

            def hold(where: Layout, daemon: GpuDaemon) -> None:
                for golden, prompts, expected in goldens(MODELS / name):
                    found = Encoder(daemon).encode(prompts)
                    self.report.against_measure("tiny", f"{where.name} {name}/{golden}", errors_of(found, expected),
                                                measure["bf16_rel_err"], all_finite(found))

            self.in_layouts(self.layouts, MODELS / name, hold, segment_mib=TINY_SEGMENT_MIB)

    def random(self) -> None:
        config = self.config(self.layers)
        requests = requests_of(config["vocab_size"], SINGLE_LENGTHS, self.seed)
        prompts = [prompt for request in requests for prompt in request]
        found = self.encode_everywhere(config, requests, self.layouts, SEGMENT_MIB)
        self.report.say("random: transformers and float64")
        model = random_model(config, self.seed, self.device)
        others = [transformers_states(model, prompt) for prompt in prompts]
        expected = Float64Model(config, dict(model.named_parameters())).states(prompts)
        measure = errors_of(others, expected)
        for where in self.layouts:
            errors = errors_of(found[where], expected)
            self.show_worst_prompt(prompts, errors, measure)
            self.report.against_measure("random", where.name, errors, measure.by_layer(), all_finite(found[where]))

    def deep(self) -> None:
        config = self.config(self.deep_layers)
        requests = requests_of(config["vocab_size"], DEEP_LENGTHS, self.seed)
        where = self.layouts[0]
        found = self.encode_everywhere(config, requests, [where], DEEP_SEGMENT_MIB)[where]
        self.report.say("deep: transformers")
        model = random_model(config, self.seed, self.device)
        errors = Errors()
        for states, prompt in zip(found, [prompt for request in requests for prompt in request], strict=True):
            errors.add(states, transformers_states(model, prompt))
        layers = errors.by_layer()
        print("layer  daemon from HF bf16, relative")
        for number, error in enumerate(layers):
            print(f"{number:5d}  {error:.3e}")
        self.report.finding("deep", where.name, all_finite(found), f"differs by {max(layers):.4f} at most from HF bf16",
                            differences=layers)

    def lengths(self) -> None:
        config = self.config(self.layers)
        self.in_layouts_of_random(self.layouts, config, lambda *there: self.sweep_lengths(*there, config["vocab_size"]),
                                  SEGMENT_MIB)

    def processor(self) -> None:
        make_config, versions = processor_accuracy.SCALES[self.processor_scale]
        config = make_config() if make_config else self.config(self.deep_layers)

        def in_layouts(act, **settings) -> None:
            self.in_layouts_of_random(self.layouts, config, act, processor_accuracy.SEGMENT_MIB, **settings)

        for version in versions:
            attempt(self.report, "processor", f"all {version.name}",
                    lambda: processor_accuracy.check_version(version, config, self.seed, self.device, in_layouts,
                                                             self.report))

    # Their pieces.

    def encode_everywhere(self, config: dict, requests: list, layouts: list[Layout],
                          segment_mib: int) -> dict[Layout, list[States]]:
        found = {}

        def encode(where: Layout, daemon: GpuDaemon) -> None:
            found[where] = Encoder(daemon).encode_all(requests)

        self.in_layouts_of_random(layouts, config, encode, segment_mib)
        return found

    @staticmethod
    def show_worst_prompt(prompts: list, errors: Errors, measure: Errors) -> None:
        shares = [(ratio, index, layer)
                  for index, pair in enumerate(zip(errors.by_prompt, measure.by_prompt, strict=True))
                  for layer, ratio in enumerate(ratios(*pair))]
        ratio, index, layer = max(shares)
        print(f"worst prompt alone: {len(prompts[index])} tokens (number {index}), ratio {ratio:.3f} in layer {layer}")

    def sweep_lengths(self, where: Layout, daemon: GpuDaemon, vocabulary: int) -> None:
        generator = random.Random(self.seed)
        thorough = where == self.layouts[0] and not self.quick
        singles = [[length] for length in range(1, LONGEST + 1, 1 if thorough else 37)]
        batches = singles + [mixed_lengths(generator) for _ in range(64 if thorough else 8)]
        bad = []
        with contextlib.ExitStack() as stack:
            client = stack.enter_context(daemon.client())
            readers = [stack.enter_context(daemon.reader(rank)) for rank in range(daemon.ranks)]
            for batch in batches:
                reply = client.call("encode", prompts=[random_prompt(generator, n, vocabulary) for n in batch],
                                    outputs=["last_hidden_state"])
                if not reply["ok"] or not all([result_is_finite(reader, reply["job"]) for reader in readers]):
                    bad.append(batch)
        self.report.finding("lengths", where.name, not bad,
                            f"{len(batches)} batches, {len(bad)} of them bad" + (f": {bad[:3]}" if bad else ""))


def mixed_lengths(generator: random.Random) -> list[int]:
    """Lengths of a batch: some short, some long, together no more than one batch takes."""
    lengths = []
    while len(lengths) < 32:
        length = generator.choice((generator.randint(1, 32), generator.randint(1, LONGEST)))
        if sum(lengths) + length > BATCH_TOKENS:
            break
        lengths.append(length)
    return lengths


def result_is_finite(reader: Reader, job: int) -> bool:
    lease = reader.acquire(job)
    if not lease["ok"]:
        raise AssertionError(f"acquire: {lease}")
    finite = all(prompt["status"] == "ok" and all(is_finite(reader, tensor) for tensor in prompt["tensors"])
                 for prompt in lease["prompts"])
    reader.release(lease)
    return finite


def is_finite(reader: Reader, tensor: dict) -> bool:
    """In place: no element's exponent is all ones."""
    number, mask = EXPONENT_BITS[tensor["dtype"]]
    bits = numpy.frombuffer(reader.segment, number, tensor["bytes"] // numpy.dtype(number).itemsize, tensor["offset"])
    return not bool(((bits & number(mask)) == mask).any())


def goldens(folder: Path) -> Iterator[tuple[str, list, list[States]]]:
    """Name, prompts and hidden states of each golden that a model has."""
    tensors = load_file(folder / "golden.safetensors")
    width, counts = tensors["input_ids"].shape[1], tensors["attention_mask"].sum(1).tolist()
    ids = [row[width - count:].tolist() for row, count in zip(tensors["input_ids"], counts)]
    num_states = sum(name.startswith("hidden_states.") for name in tensors)
    yield "ids", ids, [[tensors[f"hidden_states.{layer}"][index, width - count:] for layer in range(num_states)]
                       for index, count in enumerate(counts)]
    for file in glob.glob(str(folder / "golden-text.safetensors")):
        tensors = load_file(file)
        with safe_open(file, "pt") as content:
            texts = json.loads(content.metadata()["prompts"])
        yield "text", texts, [states_of(tensors, index) for index in range(len(texts))]


def parse_arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--layouts", nargs="+", type=layout, default=[layout("1")], help="default: 1")
    parser.add_argument("--layers", type=int, default=6, help="of random and lengths (default 6)")
    parser.add_argument("--deep-layers", type=int, default=LAYERS_12B, help="of deep (default 48)")
    parser.add_argument("--seed", type=int, default=1, help="of weights and prompts")
    parser.add_argument("--quick", action="store_true", help="some lengths in place of all, processors after a thin Gemma")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="of the daemon and of torch")
    parser.add_argument("--config", type=Path, help="config.json of a text model instead of the sizes of the 12B")
    parser.add_argument("--processor-scale", choices=processor_accuracy.SCALES,
                        help="full: after a Gemma of --deep-layers; thin: after one of 48 layers as wide, but quickly made; "
                             "tiny: all small, for trying out on a CPU (default: full, with --quick thin)")
    parser.add_argument("--set", type=setting, action="append", default=[], metavar="KEY=VALUE",
                        help="a setting of the daemon")
    parser.add_argument("--out", type=Path, help="file for a line of JSON a finding")
    arguments = parser.parse_args(words)
    arguments.processor_scale = arguments.processor_scale or ("thin" if arguments.quick else "full")
    return arguments


def attempt(report: Report, part: str, name: str, act: Callable[[], None]) -> None:
    """What goes wrong is a finding, so that all others still run."""
    try:
        act()
    except Exception as error:  # noqa: BLE001: the status tells
        traceback.print_exc()
        report.finding(part, name, False, f"{type(error).__name__}: {error}"[:500])
    with contextlib.suppress(RuntimeError):
        torch.cuda.empty_cache()


def main() -> int:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = Report(arguments.out)
    check = Check(arguments.layouts, arguments.layers, arguments.deep_layers, arguments.seed, arguments.quick,
                  arguments.device, settings_of(arguments.set), report, arguments.config, arguments.processor_scale)
    check_generator(arguments.device, arguments.seed)
    for part in arguments.parts:
        report.say(part)
        attempt(report, part, "all", getattr(check, part))
    print("accuracy:", "FAIL" if report.failed else "PASS")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
