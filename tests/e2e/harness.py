"""Starts the real daemon under mpirun, and talks to it as clients and readers do. Standard library only.

Run a file of tests by hand, and it takes the binaries of build/release; GEMMAD_E2E_GEMMAD and so on name others.
"""

import contextlib
import itertools
import json
import mmap
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from processes import DEADLINE_S, die_with_parent, poll, process_stat, processes_of_session
from tensors import Tensor

TESTS = Path(__file__).resolve().parents[1]
MODELS = TESTS / "data" / "models"
TINY = MODELS / "gemma3-tiny"            # 8 layers of width 96, vocabulary 512
TEXT_TINY = MODELS / "gemma3-text-tiny"  # the same sizes, text only, in 7 shards
LTX_V2 = TESTS / "data" / "ltx-tiny" / "ltx-v2.safetensors"  # an embeddings processor for both
NUM_LAYERS, WIDTH, VOCABULARY = 8, 96, 512
BOS = 2

BUILD = TESTS.parent / "build" / "release"
GEMMAD = os.environ.get("GEMMAD_E2E_GEMMAD", BUILD / "daemon" / "gemmad")
GEMMACTL = os.environ.get("GEMMAD_E2E_GEMMACTL", BUILD / "daemon" / "ctl" / "gemmactl")
READER_EXAMPLE = os.environ.get("GEMMAD_E2E_READER_EXAMPLE", BUILD / "comm" / "reader" / "gemmad_reader_example")
MPIEXEC = os.environ.get("GEMMAD_E2E_MPIEXEC", "mpirun")

# What a shell starts in the background ignores SIGINT, and so would all that is started from here.
signal.signal(signal.SIGINT, signal.default_int_handler)


def mpi_environment():
    environment = dict(os.environ)
    if os.geteuid() == 0:
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return environment


class Daemon:
    """mpirun with gemmad in it, on a socket in a folder of its own. A context manager: starts and waits until ready.

    `settings` are those of the config file. The folder goes at the end unless it was given. mpirun gives the other ranks
    a second or two after one has failed; with `no_patience` it kills them at once.
    """

    def __init__(self, ranks=1, model=TINY, folder=None, arguments=(), no_patience=False, **settings):
        self.ranks = ranks
        self.own_folder = folder is None
        self.folder = Path(folder or tempfile.mkdtemp(prefix="gemmad-e2e-"))
        self.socket = str(self.folder / "control.sock")
        settings = {"segment_mib": 64, "result_cache_mib": 0, "device": "cpu", **settings}
        self.arguments = ["--socket", self.socket]
        if model is not None:
            self.arguments += ["--model", str(model)]
        for key, value in settings.items():
            self.arguments += ["--set", f"{key}={value}"]
        self.arguments += arguments
        self.command = [MPIEXEC, "--oversubscribe", "--bind-to", "none", "--mca", "btl_vader_single_copy_mechanism",
                        "none", *(["--mca", "odls_base_sigkill_timeout", "0"] if no_patience else []),
                        "-n", str(ranks), str(GEMMAD), *self.arguments]
        self.log_file = None
        self.process = None
        self.pids = []
        self.first_health = None

    # Start and end.

    def start(self):
        log, name = tempfile.mkstemp(dir=self.folder, prefix="log-")
        self.log_file = Path(name)
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                        env=mpi_environment(), start_new_session=True, preexec_fn=die_with_parent)
        os.close(log)
        return self

    def wait_ready(self):
        def ready():
            if self.process.poll() is not None:
                raise AssertionError(f"the daemon ended with {self.process.returncode} at its start")
            try:
                with Client(self.socket) as client:
                    self.first_health = client.call("health")
                    return self.first_health["ok"]
            except (FileNotFoundError, ConnectionError, EOFError):
                return False

        poll(ready, "the daemon answers")
        self.pids = [rank["pid"] for rank in self.ask("info")["ranks"]]
        return self

    @contextlib.contextmanager
    def start_only(self):
        """For a start that may fail: nothing is waited for, and how the daemon ends is the caller's to check."""
        try:
            yield self.start()
        finally:
            self.destroy()

    def __enter__(self):
        try:
            return self.start().wait_ready()
        except BaseException:
            self.show_log()
            self.destroy()
            raise

    def __exit__(self, kind, *_):
        try:
            if kind is not None:
                self.show_log()
            elif self.process.poll() is None and self.stop() != 0:
                self.show_log()
                raise AssertionError(f"the daemon ended with {self.process.returncode}")
        finally:
            self.destroy()

    def stop(self):
        """As a user would. Returns mpirun's exit status."""
        self.ask("shutdown")
        return self.wait_exit()

    def wait_exit(self, deadline_s=DEADLINE_S):
        """mpirun's exit status."""
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the daemon has not ended within {deadline_s} s") from None

    def destroy(self):
        """Kills whatever is left, and removes the folder."""
        if self.process is not None:
            self.kill_left()
            self.process.wait()
            self.kill_left()
        if self.own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def kill_left(self):
        for pid in processes_of_session(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # Looking at it.

    def log(self):
        return self.log_file.read_text(errors="replace") if self.log_file else ""

    def show_log(self):
        print(f"\n--- log of {' '.join(self.command)}\n{self.log()[-8000:]}--- end of log", file=sys.stderr)

    def sockets(self):
        """Names of the sockets in its folder: none once it has stopped."""
        return sorted(path.name for path in self.folder.iterdir() if path.is_socket())

    def processes(self):
        """Ids of living processes of this daemon, mpirun included."""
        return processes_of_session(self.process.pid)

    def reader_socket(self, rank=0):
        return f"{self.socket}.reader-{rank}"

    def client(self):
        return Client(self.socket)

    def reader(self, rank=0):
        return Reader(self.reader_socket(rank))

    def ask(self, op):
        """The reply to a request on a connection of its own. Waits where as many clients as allowed are there."""
        def answered():
            with contextlib.suppress(BrokenPipeError, ConnectionResetError), Client(self.socket) as client:
                client.send_request(op)
                reply = client.read_reply()
                return reply if reply["id"] is not None else None

        return poll(answered, f"the daemon answers {op}")

    def health(self):
        return self.ask("health")

    def metric(self, series):
        """The value of a series, named with its labels; 0 where nothing has been counted yet."""
        for line in self.ask("metrics")["text"].splitlines():
            name, _, value = line.rpartition(" ")
            if name == series:
                return float(value)
        return 0.0

    def wait_for_no_leases(self):
        """For after a reader has gone: a rank learns of that in its own time."""
        poll(lambda: not any(rank["segment"]["leases"] for rank in self.health()["ranks"]), "no leases are left")

    # Making it busy.

    def signal_rank(self, rank, number):
        os.kill(self.pids[rank], number)

    @contextlib.contextmanager
    def held_still(self, rank=1):
        """Stops a rank for a while: rank 0 waits for it in a heartbeat, so that every encode waits in the queue."""
        # An order that took long is no heartbeat that is waited for.
        poll(lambda: self.health()["ranks"][0]["heard_ms_ago"] < 500, "a heartbeat has just been")
        self.signal_rank(rank, signal.SIGSTOP)
        try:
            poll(lambda: process_stat(self.pids[rank])[0] == "T", f"rank {rank} has stopped")
            # Then no heartbeat or batch was under way: the engine is in the next one.
            poll(lambda: self.health()["ranks"][0]["heard_ms_ago"] > 1000, "rank 0 waits for the heartbeat")
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                self.signal_rank(rank, signal.SIGCONT)


class Client:
    """A connection to the control socket."""

    def __init__(self, path, timeout_s=DEADLINE_S):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Without a time limit: with one, connect does not wait for a place among those not accepted yet.
            self.socket.connect(path)
            self.socket.settimeout(timeout_s)
        except BaseException:
            self.socket.close()
            raise
        self.received = b""
        self.ids = itertools.count(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def send_request(self, op, **fields):
        """Returns the request's id."""
        number = fields.pop("id", None)
        number = next(self.ids) if number is None else number
        self.send(json.dumps({"id": number, "op": op, **fields}).encode() + b"\n")
        return number

    def read_line(self):
        """The next line without its newline. EOFError when the daemon has closed."""
        while b"\n" not in self.received:
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError
            self.received += data
        line, self.received = self.received.split(b"\n", 1)
        return line

    def read_reply(self):
        return json.loads(self.read_line())

    def call(self, op, **fields):
        """The reply to one request. Replies to other requests must not be on their way."""
        number = self.send_request(op, **fields)
        reply = self.read_reply()
        if reply["id"] != number:
            raise AssertionError(f"expected the reply to {number}, got {reply}")
        return reply

    def ask(self, line):
        """The reply to a line of any bytes."""
        self.send(line + b"\n")
        return self.read_reply()


class Reader:
    """A connection to a rank's reader socket, with the segment mapped."""

    def __init__(self, path, timeout_s=DEADLINE_S):
        self.client = Client(path, timeout_s)
        data, fds, _, _ = socket.recv_fds(self.client.socket, 1 << 16, 4)
        (self.fd,) = fds
        self.client.received = data
        self.greeting = self.client.read_reply()
        self.segment = mmap.mmap(self.fd, self.greeting["segment_bytes"], mmap.MAP_SHARED, mmap.PROT_READ)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.segment.close()
        self.client.close()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def acquire(self, job=None, name=None, deadline_ms=int(DEADLINE_S * 1000)):
        """The reply, ok or not."""
        key = {"job": job} if name is None else {"name": name}
        return self.client.call("acquire", deadline_ms=deadline_ms, **key)

    def release(self, lease):
        reply = self.client.call("release", lease=lease["lease"])
        if not reply["ok"]:
            raise AssertionError(f"release: {reply}")

    def tensors(self, lease):
        """Copies of an acquired result's tensors, named as gemmactl names them."""
        found = {}
        for index, prompt in enumerate(lease["prompts"]):
            for tensor in prompt.get("tensors", []):
                data = self.segment[tensor["offset"]:tensor["offset"] + tensor["bytes"]]
                found[f"prompt.{index}.{tensor['name']}"] = Tensor(tensor["dtype"], tensor["shape"], data)
        return found

    def take(self, job):
        """The tensors of a job; its lease ends at once."""
        lease = self.acquire(job)
        if not lease["ok"]:
            raise AssertionError(f"acquire job {job}: {lease}")
        found = self.tensors(lease)
        self.release(lease)
        return found


class DaemonTestCase(unittest.TestCase):
    """Tests that share one daemon and do not disturb each other. Shows its log when one fails."""

    DAEMON = {}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.daemon = cls.enter(Daemon(**cls.DAEMON))

    @classmethod
    def enter(cls, context):
        value = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)
        return value

    def run(self, result=None):
        before = len(result.failures) + len(result.errors) if result else 0
        super().run(result)
        if result and len(result.failures) + len(result.errors) > before:
            self.daemon.show_log()
        return result

    def connect(self):
        """A client that lives as long as the test."""
        client = self.daemon.client()
        self.addCleanup(client.close)
        return client

    def connect_reader(self, rank=0):
        reader = self.daemon.reader(rank)
        self.addCleanup(reader.close)
        return reader

    def assert_alive(self):
        """The daemon answers the next client."""
        self.assertEqual(self.daemon.health()["status"], "ok")

    def assert_refused(self, reply, code, *words):
        """An error with that code, whose message has those words."""
        self.assertFalse(reply["ok"], reply)
        self.assertEqual(reply["error"]["code"], code, reply)
        for word in words:
            self.assertIn(word, reply["error"]["message"])


def run_program(*command, deadline_s=DEADLINE_S, **options):
    """A finished subprocess with its output as text."""
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=deadline_s, **options)


def gemmactl(daemon, *arguments, **options):
    return run_program(GEMMACTL, "--socket", daemon.socket, *arguments, **options)
