#!/usr/bin/env python3
"""Times the daemon on one GPU and on several: from sending a request until its reply, which comes once every rank has
published. Prints a line of JSON for each case. Standard library only.

The model is Gemma 3 12B with random weights unless --model names another one, with the embeddings processor of LTX-2.3.
Requests differ from each other and go one after the other; results are released between them, untimed. GPUs that work
without a pause lower their clock: where that shows, a case is also timed with a pause before each request ("rested").
Cases of many tokens have few requests: their results are 3 GB each, in a segment of every rank.
"""

import argparse
import collections
import contextlib
import json
import random
import signal
import statistics
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from gpu_daemon import ANSWER_S, LAYERS_12B, GpuDaemon, ModelFolder, config_12b, setting, settings_of, states_bytes
from harness import Client, Reader
from modes import ADAPTIVE, BATCH_PARALLEL, LAYER, TENSOR, random_prompt, switch

WARM_UP = 8
LARGE_TOKENS, LARGE_WARM_UP, LARGE_REQUESTS = 8192, 2, 5
MEBIBYTE, SPARE_MIB = 1 << 20, 64  # beside the states: what lies around them, and embeddings
RANKS_OF_HYBRID = 2  # of each of its replicas
STAGES = ("queue", "compute", "busy", "deliver", "total")
PAUSE_S, RESTED_REQUESTS = 0.7, 8
OUTPUTS = {"all": "hidden_states", "last": "last_hidden_state", "embeddings": "embeddings"}
PROCESSOR = "ltx-2.3"


@dataclass(frozen=True)
class Case:
    """The prompts of a request, whether it asks for all hidden states, the last one alone or embeddings, and whether
    GPUs get so hot of it that it is timed rested too."""

    prompts: int
    tokens: int
    states: str = "all"
    rests: bool = False

    @property
    def name(self) -> str:
        return f"{self.prompts}x{self.tokens}"

    @property
    def is_large(self) -> bool:
        return self.prompts * self.tokens >= LARGE_TOKENS

    def request(self, generator: random.Random, vocabulary: int) -> dict:
        prompts = [random_prompt(generator, self.tokens, vocabulary) for _ in range(self.prompts)]
        # One reader is enough also where several ranks share a segment.
        return {"op": "encode", "prompts": prompts, "outputs": [OUTPUTS[self.states]], "readers": 1}


@dataclass(frozen=True)
class Way:
    name: str
    settings: dict
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Run:
    """One daemon, and the modes that it is switched through."""

    ranks: int
    segments: str
    ways: tuple[Way, ...]

    def segment_mib(self, config: dict) -> int:
        """What holds the largest result. The memory is pinned, and with segments per_rank taken once a rank."""
        most = max(case.prompts * case.tokens for way in self.ways for case in way.cases)
        return -(-most * states_bytes(config) // MEBIBYTE) + SPARE_MIB


HOT = Case(2, 1024, rests=True)
EMBEDDINGS = (Case(1, 128, "embeddings"), Case(2, 128, "embeddings"))
LARGE = (Case(8, 1024), Case(64, 128))
ONE_GPU = (Case(1, 128), Case(1, 16), Case(2, 128), Case(1, 1024), HOT, Case(1, 128, "last"), Case(2, 1024, "last"))
TWO_GPUS = (Case(1, 128), Case(2, 128), HOT)
FULL = (Case(2, 1024),)
PLAIN = (Case(1, 128), Case(2, 128), *FULL)


def runs_for(ranks: int, processes: bool) -> list[Run]:
    more = EMBEDDINGS if processes else ()
    if ranks == 1:
        return [Run(1, "per_rank", (Way("one rank", BATCH_PARALLEL, (*ONE_GPU, *more, *LARGE)),))]
    cases, last = ((*TWO_GPUS, *more), (Case(1, 128, "last"),)) if ranks == 2 else (PLAIN, ())
    ways = [Way("tensor", TENSOR, (*cases, *last, *LARGE)), Way("layer", LAYER, (*PLAIN, *LARGE)),
            Way("batch_parallel", BATCH_PARALLEL, (*cases, *LARGE)), Way("adaptive", ADAPTIVE, (*cases, *LARGE))]
    if ranks > RANKS_OF_HYBRID and ranks % RANKS_OF_HYBRID == 0:
        ways.append(Way(f"tensor {ranks // RANKS_OF_HYBRID} x {RANKS_OF_HYBRID}",
                        {**TENSOR, "ranks_per_replica": RANKS_OF_HYBRID}, (*PLAIN, *LARGE)))
    return [Run(ranks, "per_rank", tuple(ways)),
            Run(ranks, "per_node", (Way("tensor", TENSOR, FULL), Way("batch_parallel", BATCH_PARALLEL, FULL),
                                    Way("adaptive", ADAPTIVE, FULL)))]


@dataclass
class Sample:
    ms: float
    stages: dict[str, float]
    cut: str


def send_one(client: Client, readers: list[Reader], request: dict, number: int) -> Sample:
    data = json.dumps({"id": number, **request}).encode() + b"\n"
    begin = time.perf_counter()
    client.send(data)
    line = client.read_line()
    ms = (time.perf_counter() - begin) * 1e3
    reply = json.loads(line)
    wrong = [prompt for prompt in reply.get("prompts", []) if prompt["status"] != "ok"]
    if not reply["ok"] or wrong:
        raise AssertionError(f"encode: {wrong[:1] or reply}")
    for reader in readers:
        lease = reader.acquire(reply["job"])
        if not lease["ok"]:
            raise AssertionError(f"acquire: {lease}")
        reader.release(lease)
    return Sample(ms, reply["ms"], reply["cut"])


def nearest_rank(ordered: list[float], percent: int) -> float:
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def figures(samples: list[Sample]) -> dict:
    """What a case came to: the time of a request, and the daemon's own account of it, as medians."""
    ordered = sorted(sample.ms for sample in samples)
    return {"requests": len(samples), "median_ms": round(statistics.median(ordered), 3),
            "p10_ms": round(nearest_rank(ordered, 10), 3), "p90_ms": round(nearest_rank(ordered, 90), 3),
            "stages_ms": {stage: round(statistics.median(sample.stages[stage] for sample in samples), 3)
                          for stage in STAGES},
            "cuts": dict(collections.Counter(sample.cut for sample in samples))}


class Bench:
    def __init__(self, model: str, settings: dict, requests: int, large_requests: int, seed: int):
        self.model = model
        self.config = json.loads((Path(model) / "config.json").read_text())
        self.settings = settings
        self.requests = requests
        self.large_requests = min(large_requests, requests)
        self.generator = random.Random(seed)
        self.failed = False

    def emit(self, **fields) -> None:
        print(json.dumps(fields), flush=True)

    def run(self, run: Run) -> None:
        facts = {"ranks": run.ranks, "segments": run.segments}
        begin = time.monotonic()
        try:
            settings = {"segment_mib": run.segment_mib(self.config), **self.settings, **run.ways[0].settings}
            with GpuDaemon(run.ranks, self.model, segments=run.segments, **settings) as daemon:
                info = daemon.ask("info")
                self.emit(kind="start", **facts, seconds=round(time.monotonic() - begin, 1), version=info["version"],
                          collectives=info["collectives"], devices=[rank["device"] for rank in info["ranks"]],
                          bytes=info["ranks"][0]["bytes"])
                self.run_ways(daemon, info, run, facts)
        except Exception as error:  # noqa: BLE001: the other runs still run, and the status tells
            traceback.print_exc()
            self.fail(error, **facts)

    def run_ways(self, daemon: GpuDaemon, info: dict, run: Run, facts: dict) -> None:
        sockets = sorted({rank["reader_socket"] for rank in info["ranks"]})
        with contextlib.ExitStack() as stack:
            client = stack.enter_context(Client(daemon.socket, ANSWER_S))
            readers = [stack.enter_context(Reader(path)) for path in sockets]
            for number, way in enumerate(run.ways):
                if number > 0:
                    reply = switch(client, **way.settings)
                    self.emit(kind="switch", **facts, mode=way.name, ms=reply["ms"])
                for case in way.cases:
                    def send() -> Sample:
                        request = case.request(self.generator, info["model"]["vocab_size"])
                        return send_one(client, readers, request, next(client.ids))

                    fields = figures(self.measure(case, send))
                    if case.rests:
                        rested = figures(self.measure_rested(send))
                        fields.update(rested_ms=rested["median_ms"], rested_compute_ms=rested["stages_ms"]["compute"])
                    self.emit(kind="speed", **facts, mode=way.name, case=case.name, states=case.states, **fields)

    def measure(self, case: Case, send) -> list[Sample]:
        before, measured = (LARGE_WARM_UP, self.large_requests) if case.is_large else (WARM_UP, self.requests)
        return [send() for _ in range(before + measured)][before:]

    @staticmethod
    def measure_rested(send) -> list[Sample]:
        samples = []
        for _ in range(RESTED_REQUESTS):
            time.sleep(PAUSE_S)
            samples.append(send())
        return samples

    def fail(self, error: Exception, **facts) -> None:
        self.failed = True
        self.emit(kind="error", **facts, error=f"{type(error).__name__}: {error}"[:500])


def parse_arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1], help="numbers of GPUs, one after the other")
    parser.add_argument("--requests", type=int, default=30, help="measured requests a case (default 30)")
    parser.add_argument("--large-requests", type=int, default=LARGE_REQUESTS,
                        help=f"the same of cases of {LARGE_TOKENS} tokens, no more than the others' (default {LARGE_REQUESTS})")
    parser.add_argument("--layers", type=int, default=LAYERS_12B, help="of the random model (default 48)")
    parser.add_argument("--seed", type=int, default=1, help="of weights and prompts")
    parser.add_argument("--model", help="a model in Hugging Face form instead of the random one")
    parser.add_argument("--set", type=setting, action="append", default=[], metavar="KEY=VALUE",
                        help="a setting of the daemon")
    return parser.parse_args(words)


def main() -> int:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        model, settings = arguments.model, {"device": "cuda"}
        if model is None:
            model = stack.enter_context(ModelFolder(config_12b(arguments.layers)))
            settings.update(weights="random", weights_seed=arguments.seed, processor_preset=PROCESSOR)
        bench = Bench(model, {**settings, **settings_of(arguments.set)}, arguments.requests, arguments.large_requests,
                      arguments.seed)
        for ranks in arguments.ranks:
            for run in runs_for(ranks, processes=arguments.model is None):
                bench.run(run)
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
