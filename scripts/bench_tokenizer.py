#!/usr/bin/env python3
"""Compares gemmad's tokenizer with Hugging Face tokenizers: the same texts, one core, taking turns.

Prints loading time and encoding speed of both, medians over the rounds, and whether the ids are equal.
Exits 1 if gemmad is slower anywhere or the ids differ, 2 if something that it needs is missing.

Needs the Python package tokenizers, and the target tokenizer_bench built.
"""

import argparse
import json
import lzma
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Before the import: threads would start there.
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
try:
    import tokenizers
except ImportError:
    tokenizers = None

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data" / "tokenizer"
AGAIN = 5  # as in tokenizer_bench


def read_bytes(path):
    return lzma.open(path).read() if path.suffix == ".xz" else path.read_bytes()


def hash_of_ids(rows):
    value = 0xCBF29CE484222325
    for ids in rows:
        for token in ids:
            value = ((value ^ token) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return str(value)


def timed(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def quickest_pass(tokenizer, texts):
    """Both ways to encode many texts; the quicker one counts. The first call may fill the tokenizer's cache."""
    one_by_one = timed(lambda: [tokenizer.encode(text).ids for text in texts])[0]
    batch = timed(lambda: [e.ids for e in tokenizer.encode_batch_fast(texts)])[0]
    return min(one_by_one, batch)


def measure_reference(path, workloads):
    load_s, tokenizer = timed(lambda: tokenizers.Tokenizer.from_file(str(path)))
    out = {"load_s": load_s, "workloads": {}}
    for name, texts in workloads.items():
        first_s, rows = timed(lambda: [tokenizer.encode(text).ids for text in texts])
        again_s = statistics.median(quickest_pass(tokenizer, texts) for _ in range(AGAIN))
        out["workloads"][name] = {
            "first_s": first_s,
            "again_s": again_s,
            "tokens": sum(map(len, rows)),
            "hash": hash_of_ids(rows),
        }
    return out


def measure_gemmad(binary, path, texts_path):
    run = subprocess.run([binary, path, texts_path], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout)


def print_row(what, reference, gemmad, better_is_more=False):
    """One line of the table; returns whether gemmad is at least as quick."""
    ratio = gemmad / reference if better_is_more else reference / gemmad
    print(f"{what:<42}{reference:>14.4g}{gemmad:>14.4g}{ratio:>9.1f}x")
    return ratio >= 1


def report(reference, gemmad, workloads):
    median = lambda rounds, pick: statistics.median(pick(r) for r in rounds)
    print(f"{'medians of ' + str(len(gemmad)) + ' rounds':<42}{'tokenizers':>14}{'gemmad':>14}{'ratio':>10}")
    good = [print_row("load, s", median(reference, lambda r: r["load_s"]), median(gemmad, lambda r: r["load_s"]))]
    for name, texts in workloads.items():
        megabytes = sum(len(text.encode()) for text in texts) / 1e6
        for key, label in (("first_s", "first pass"), ("again_s", "again")):
            seconds = [median(rounds, lambda r: r["workloads"][name][key]) for rounds in (reference, gemmad)]
            label = f"{name}, {label}"
            good.append(print_row(f"{label}, MB/s", megabytes / seconds[0], megabytes / seconds[1], True))
            if len(texts) > 1:
                print_row(f"{label}, prompts/s", len(texts) / seconds[0], len(texts) / seconds[1], True)
        equal = {r["workloads"][name]["hash"] for r in reference + gemmad}
        good.append(len(equal) == 1)
        tokens = gemmad[0]["workloads"][name]["tokens"]
        print(f"{name}: {len(texts)} texts, {megabytes:.3f} MB, {tokens} tokens, ids {'equal' if good[-1] else 'DIFFER'}")
    return all(good)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokenizer", type=Path, default=DATA / "gemma3-tokenizer.json.xz", help="tokenizer.json, or .xz of it")
    parser.add_argument("--cases", type=Path, default=DATA / "cases.jsonl.xz", help="lines with a \"text\", or .xz of them")
    parser.add_argument("--binary", type=Path, default=ROOT / "build" / "release" / "tests" / "bench" / "tokenizer_bench")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if tokenizers is None:
        print("bench_tokenizer.py: the Python package tokenizers is missing; pip install tokenizers", file=sys.stderr)
        return 2
    for path in (arguments.tokenizer, arguments.cases, arguments.binary):
        if not path.is_file():
            print(f"bench_tokenizer.py: there is no {path}", file=sys.stderr)
            return 2

    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})  # the binary inherits it
    texts = list(dict.fromkeys(json.loads(line)["text"] for line in read_bytes(arguments.cases).splitlines()))
    workloads = {"distinct prompts": texts, "one long text": [" ".join(texts * 3)]}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer_path = Path(folder, "tokenizer.json")
        tokenizer_path.write_bytes(read_bytes(arguments.tokenizer))
        texts_path = Path(folder, "texts.json")
        texts_path.write_text(json.dumps(workloads))
        reference, gemmad = [], []
        for _ in range(arguments.rounds):
            reference.append(measure_reference(tokenizer_path, workloads))
            gemmad.append(measure_gemmad(arguments.binary, tokenizer_path, texts_path))
    print(f"tokenizers {tokenizers.__version__}, core {core}")
    return 0 if report(reference, gemmad, workloads) else 1


if __name__ == "__main__":
    sys.exit(main())
