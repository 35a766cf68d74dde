"""A daemon of paper: says on both sockets what a test wants it to say."""

import array
import contextlib
import fcntl
import json
import os
import socket
import struct
import tempfile
import threading
from pathlib import Path

HEADER = struct.Struct("=8sIIQiI")
SEGMENT_BYTES = 1 << 16


def make_segment(content=b"", size_bytes=SEGMENT_BYTES, rank=0, magic=b"GEMMADSG", version=1, sealed=True):
    """A descriptor; `content` follows the header's block."""
    fd = os.memfd_create("fake-segment", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(fd, size_bytes)
    os.pwrite(fd, HEADER.pack(magic, version, 4096, size_bytes, rank, 0), 0)
    os.pwrite(fd, content, 4096)
    if sealed:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return fd


class FakeServer:
    """Calls `talk` with each connection on a thread of its own; the connection is closed when it returns."""

    def __init__(self, path, talk):
        self.talk = talk
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen(16)
        self.connections = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.connections.append(connection)
                threading.Thread(target=self.talk_and_close, args=(connection,), daemon=True).start()

    def talk_and_close(self, connection):
        with connection, contextlib.suppress(OSError):
            self.talk(connection)

    def close(self):
        for one in (self.listener, *self.connections):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def requests(connection):
    """Each request that comes."""
    with connection.makefile("rb") as lines:
        for line in lines:
            yield json.loads(line)


def send(connection, body):
    connection.sendall(json.dumps(body).encode() + b"\n")


# What a rewritten prompt's reply tells.
ENHANCED = {"job": 7, "text": "a better dog", "raw_text": '"a better dog', "tokens_in": 30, "tokens_out": 3,
            "tokens_per_s": 40.5, "stop": "end", "ms": {"queue": 0.5, "prefill": 20.0, "decode": 50.0, "total": 71.0}}
PIECES = [("a ", [5]), ("", [6]), ("better dog", [7, 8])]


def send_pieces(connection, request):
    for text, ids in PIECES:
        send(connection, {"id": request["id"], "event": "token", "text": text, "ids": ids})


def greet(connection, fd, **changes):
    """As a rank's reader socket does. Keeps no descriptor."""
    line = json.dumps({"gemmad_reader": 1, "rank": 0, "segment_bytes": SEGMENT_BYTES, **changes}).encode() + b"\n"
    if fd is None:
        connection.sendall(line)
    else:
        connection.sendmsg([line], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
        os.close(fd)


class FakeDaemon:
    """One rank that answers every encode with the same tensors for each prompt. A context manager.

    `tensors`: by name (dtype, shape, bytes). Remembers requests to encode, to enhance and to cancel, and leases that are out.
    Prompts are enhanced to ENHANCED; "hold" after its pieces, when it is cancelled.
    """

    def __init__(self, tensors, outputs, tokens, model_type="gemma4_unified"):
        self.folder = tempfile.TemporaryDirectory(prefix="gemmad-fake-")
        self.socket = str(Path(self.folder.name) / "control.sock")
        self.reader_socket = self.socket + ".reader-0"
        self.outputs, self.tokens, self.model_type = outputs, tokens, model_type
        self.content, self.entries = b"", []
        for name, (dtype, shape, data) in tensors.items():
            self.entries.append({"name": name, "dtype": dtype, "shape": list(shape), "offset": 4096 + len(self.content),
                                 "bytes": len(data)})
            self.content += data + bytes(-len(data) % 4096)
        self.segment_bytes = 4096 * 2 + len(self.content)
        self.encodes, self.enhances, self.cancels, self.leases = [], [], [], set()
        self.servers = []

    def __enter__(self):
        self.servers = [FakeServer(self.socket, self.control), FakeServer(self.reader_socket, self.read)]
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.close()
        self.folder.cleanup()

    def control(self, connection):
        for request in requests(connection):
            if request["op"] == "info":
                send(connection, {"id": request["id"], "ok": True, "outputs": self.outputs,
                                  "model": {"type": self.model_type},
                                  "ranks": [{"rank": 0, "host": socket.gethostname(), "node": 0, "publisher": 0,
                                             "reader_socket": self.reader_socket}]})
            elif request["op"] == "health":
                send(connection, {"id": request["id"], "ok": True})
            elif request["op"] == "encode":
                self.encodes.append(request)
                enhance = request.get("enhance")
                if isinstance(enhance, dict) and enhance.get("stream"):
                    send_pieces(connection, request)
                send(connection, {"id": request["id"], "ok": True, "job": len(self.encodes), "cut": "deal", "bytes": 0,
                                  "ms": {}, "prompts": [], **({"enhanced": ENHANCED} if enhance else {})})
            elif request["op"] in ("enhance_t2v", "enhance_i2v"):
                self.enhances.append(request)
                if request.get("stream"):
                    send_pieces(connection, request)
                if request["prompt"] != "hold":
                    send(connection, {"id": request["id"], "ok": True, **ENHANCED})
            elif request["op"] == "cancel":
                self.cancels.append(request)
                send(connection, {"id": request["request"], "ok": False,
                                  "error": {"code": "cancelled", "message": "it was cancelled"}})
                send(connection, {"id": request["id"], "ok": True, "job": 7, "cancelled": True, "state": "ending"})

    def read(self, connection):
        greet(connection, make_segment(self.content, self.segment_bytes), segment_bytes=self.segment_bytes)
        for request in requests(connection):
            if request["op"] == "acquire":
                lease = request["id"]
                self.leases.add(lease)
                num_prompts = len(self.encodes[-1]["prompts"]) if self.encodes else 1
                prompt = {"status": "ok", "tokens": self.tokens, "padded_length": 1024, "truncated": False,
                          "tensors": self.entries}
                send(connection, {"id": request["id"], "ok": True, "lease": lease, "job": 1,
                                  "prompts": [prompt] * num_prompts})
            else:
                self.leases.discard(request["lease"])
                send(connection, {"id": request["id"], "ok": True})
