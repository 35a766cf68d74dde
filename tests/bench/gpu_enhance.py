#!/usr/bin/env python3
"""Times enhancements on GPUs, and encodes beside them: Gemma 3 12B with its vision tower, random weights, the real
tokenizer. Prints a line of JSON for each case. Standard library only.

Times of a token are the reply's decode_ms over the tokens behind the first; encodes go one after another, in the same
daemon without an enhancement and while one of 512 tokens runs.
"""

import argparse
import base64
import json
import lzma
import random
import statistics
import threading
import time
from pathlib import Path

from gpu_daemon import ANSWER_S, ROOT, GpuDaemon, ModelFolder, setting, settings_of
from harness import Client
from modes import random_prompt

DATA = ROOT / "tests" / "data"
ENCODES = 200
TOKENS = 512
PROMPT = "A red fox runs over fresh snow at dawn, and stops to listen."
SIDE = 768


class VisionFolder(ModelFolder):
    """config.json and tokenizer.json of Gemma 3 12B."""

    def __init__(self, layers):
        config = json.loads((DATA / "config" / "gemma3_12b.json").read_text())
        config["text_config"]["num_hidden_layers"] = layers
        super().__init__(config)
        packed = (DATA / "tokenizer" / "gemma3-tokenizer.json.xz").read_bytes()
        (Path(self.name) / "tokenizer.json").write_bytes(lzma.decompress(packed))


def image():
    generator = random.Random(1)
    return {"shape": [SIDE, SIDE, 3], "data": base64.b64encode(generator.randbytes(3 * SIDE * SIDE)).decode()}


def enhance(daemon, **fields):
    with Client(daemon.socket, ANSWER_S) as client:
        reply = client.call(fields.pop("op", "enhance_t2v"), prompt=PROMPT, deadline_ms=120_000, **fields)
    if not reply["ok"]:
        raise RuntimeError(reply)
    return reply


def together(daemon, count, **fields):
    replies = []
    threads = [threading.Thread(target=lambda seed=seed: replies.append(enhance(daemon, seed=seed, **fields)))
               for seed in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(replies) != count:
        raise RuntimeError("an enhancement failed")
    return replies


def token_ms(reply):
    return reply["ms"]["decode"] / max(1, reply["tokens_out"] - 1)


def encode_ms(client, generator, vocabulary):
    prompt = random_prompt(generator, 128, vocabulary)
    begin = time.perf_counter()
    reply = client.call("encode", prompts=[prompt], outputs=["last_hidden_state"], readers=1)
    if not reply["ok"]:
        raise RuntimeError(reply)
    return 1e3 * (time.perf_counter() - begin)


def percentile(times, share):
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def encodes(daemon, go_on, seed):
    generator = random.Random(seed)
    with Client(daemon.socket, ANSWER_S) as client:
        times = []
        while go_on(len(times)):
            times.append(encode_ms(client, generator, 200_000))
        return times


def say(**fields):
    print(json.dumps(fields), flush=True)


def run(ranks, layers, settings):
    with VisionFolder(layers) as folder, GpuDaemon(ranks, folder, weights="random", **settings) as daemon:
        daemon.wait_ready()
        enhance(daemon, max_new_tokens=8)  # makes the memory of generation
        for count in (1, 2, 4):
            replies = together(daemon, count, max_new_tokens=128, guard=False)
            say(case=f"{count} enhancements at once", ranks=ranks, tokens_in=replies[0]["tokens_in"],
                token_ms=round(statistics.median(map(token_ms, replies)), 3),
                prefill_ms=round(statistics.median(reply["ms"]["prefill"] for reply in replies), 2))
        for _ in range(3):
            reply = enhance(daemon, op="enhance_i2v", image=image(), max_new_tokens=4)
        say(case="image", ranks=ranks, tokens_in=reply["tokens_in"], prefill_ms=round(reply["ms"]["prefill"], 2))

        encodes(daemon, lambda done: done < 20, 1)
        alone = encodes(daemon, lambda done: done < ENCODES, 2)
        replies = []
        thread = threading.Thread(target=lambda: replies.append(enhance(daemon, max_new_tokens=TOKENS, seed=5, guard=False)))
        thread.start()
        time.sleep(0.3)  # it has begun; what is timed are encodes beside it, as many as there is time for
        beside = encodes(daemon, lambda _: thread.is_alive(), 3)
        thread.join()
        say(case="encode of 128 tokens", ranks=ranks, alone_ms=round(statistics.median(alone), 3),
            alone_p99_ms=round(percentile(alone, 0.99), 3), beside_ms=round(statistics.median(beside), 3),
            beside_p99_ms=round(percentile(beside[:-1], 0.99), 3), encodes_beside=len(beside),
            tokens_out=replies[0]["tokens_out"], stop=replies[0]["stop"],
            ratio=round(percentile(beside[:-1], 0.99) / percentile(alone, 0.99), 3))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("settings", nargs="*", type=setting, metavar="KEY=VALUE", help="settings of the daemon")
    options = parser.parse_args()
    run(options.ranks, options.layers, settings_of(options.settings))


if __name__ == "__main__":
    main()
