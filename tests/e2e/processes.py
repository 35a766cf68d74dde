"""Looking at processes through /proc, and waiting for what they do."""

import ctypes
import os
import signal
import time
from pathlib import Path

# Generous: other programs may load the machine. Nothing waits this long when all is well.
DEADLINE_S = 60.0
PR_SET_PDEATHSIG = 1
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
LIBC = ctypes.CDLL(None, use_errno=True)


def poll(condition, what, deadline_s=DEADLINE_S):
    """Calls `condition` until it gives something true, and returns that."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s} s: {what}")
        time.sleep(0.02)


def process_stat(pid):
    """State, parent, process group and so on: the fields of /proc/PID/stat behind the name. None when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_running(pid):
    stat = process_stat(pid)
    return stat is not None and stat[0] not in "ZX"


def processes_of_session(session):
    """Ids of all living processes that mpirun and its children have started."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = process_stat(name)
            if stat is not None and int(stat[3]) == session and stat[0] not in "ZX":
                found.append(int(name))
    return found


def cpu_seconds(pid):
    stat = process_stat(pid)
    return (int(stat[11]) + int(stat[12])) / CLOCK_TICKS


def resident_bytes(pid, kind="VmRSS"):
    """Memory of a process. RssAnon is what it has for itself: no shared memory, no files."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no {kind}")


def open_descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def pending(pid, number):
    """Whether a signal waits to be taken by that process."""
    with open(f"/proc/{pid}/status") as status:
        masks = [int(line.split()[1], 16) for line in status if line.startswith(("ShdPnd:", "SigPnd:"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def die_with_parent():
    """In the child: a test that is killed must leave no daemon behind."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
