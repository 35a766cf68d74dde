"""Ways to lay a model out over ranks, and what every one of them must give: the tensors of one rank, on all ranks."""

from dataclasses import dataclass

from goldens import LIMIT
from harness import BOS, VOCABULARY, Daemon, DaemonTestCase, Reader
from tensors import check_close

TENSOR = {"mode": "sharded", "strategy": "tensor"}
LAYER = {"mode": "sharded", "strategy": "layer"}
BATCH_PARALLEL = {"mode": "batch_parallel"}
ADAPTIVE = {"mode": "adaptive"}
MODES = {"tensor": TENSOR, "layer": LAYER, "batch_parallel": BATCH_PARALLEL, "adaptive": ADAPTIVE}
# What a switch leaves out stays as it was: these put it back.
DEFAULTS = {"strategy": "tensor", "ranks_per_replica": 0, "encoder_ranks": []}


@dataclass(frozen=True)
class Way:
    """A mode to switch to, and what to encode with there."""

    name: str
    settings: dict
    prefer: str = ""

    def fields(self):
        """Of an encode."""
        return {"prefer": self.prefer} if self.prefer else {}


WAYS = (*(Way(name, settings) for name, settings in MODES.items()),
        *(Way(f"adaptive, prefer {cut}", ADAPTIVE, cut) for cut in ("deal", "split")))


def hybrids(ranks_per_replica):
    """Several replicas, each of that many ranks."""
    return tuple(Way(f"{strategy}, {ranks_per_replica} ranks a replica",
                     {"mode": "sharded", "strategy": strategy, "ranks_per_replica": ranks_per_replica})
                 for strategy in ("tensor", "layer"))


def random_prompt(generator, num_tokens, vocabulary=VOCABULARY):
    return {"input_ids": [BOS] + [generator.randrange(vocabulary) for _ in range(num_tokens - 1)]}


def switch(client, **settings):
    """Switches, with defaults for all that is not named. Returns the reply."""
    reply = client.call("switch", **{**DEFAULTS, **settings})
    if not reply["ok"]:
        raise AssertionError(f"switch to {settings}: {reply}")
    return reply


def take_everywhere(daemon, job):
    """A job's tensors, read through the socket of every rank and the same bytes on all of them."""
    first = None
    for path in sorted({rank["reader_socket"] for rank in daemon.ask("info")["ranks"]}):
        with Reader(path) as reader:
            tensors = reader.take(job)
        if first is not None and tensors != first:
            wrong = [name for name in first.keys() | tensors.keys() if first.get(name) != tensors.get(name)]
            raise AssertionError(f"{path}: other bytes than elsewhere in {wrong[:5]}")
        first = tensors
    return first


def one_rank_results(model, requests, **settings):
    """The tensors that a daemon of one rank gives for each request."""
    with Daemon(model=model, **settings) as daemon, daemon.client() as client:
        return [encode_everywhere(daemon, client, request)[1] for request in requests]


def encode_everywhere(daemon, client, request, **fields):
    """The reply and the tensors."""
    reply = client.call("encode", **request, **fields)
    if not reply["ok"]:
        raise AssertionError(f"encode: {reply}")
    return reply, take_everywhere(daemon, reply["job"])


def check_same(tensors, expected, what, limit=LIMIT):
    """All tensors of a result within `limit` of what another daemon gave. Returns the largest error."""
    if sorted(tensors) != sorted(expected):
        raise AssertionError(f"{what}: has {sorted(tensors)}, expected {sorted(expected)}")
    return max((check_close(tensors[name], tensor, limit, f"{what}: {name}", row_limit=float("inf"))
                for name, tensor in expected.items()), default=0.0)


class ModeTestCase(DaemonTestCase):
    """One daemon that goes through its modes."""

    def switch(self, **settings):
        return switch(self.connect(), **settings)

    def encode(self, request, **fields):
        """The reply and the tensors, the same bytes on every rank."""
        return encode_everywhere(self.daemon, self.connect(), request, **fields)

    def info(self):
        return self.daemon.ask("info")
