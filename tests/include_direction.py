#!/usr/bin/env python3
"""Fails on an #include that runs against the direction of the layers, and on a cycle of includes.

    {config, kernels/base} <- {kernels, comm} <- {daemon/model, daemon/tokenizer} <- daemon

Usage: include_direction.py [ROOT]. Prints FILE:LINE: reason for each finding; exit status 1 if there is one.
"""

import re
import sys
from pathlib import Path

# Layer -> the layers it may include. A file belongs to the longest layer that begins its path.
ALLOWED = {
    "config": ["config"],
    "kernels/base": ["kernels/base"],
    "kernels": ["kernels", "kernels/base"],
    "comm": ["comm", "config", "kernels/base"],
    "comm/reader": ["comm", "comm/reader", "kernels/base"],
    "comm/reader/example": ["comm/reader"],
    "daemon/model": ["daemon/model", "config", "kernels", "kernels/base", "comm"],
    "daemon/tokenizer": ["daemon/tokenizer", "config", "kernels", "kernels/base", "comm"],
    "daemon": ["daemon", "daemon/model", "daemon/tokenizer", "config", "kernels", "kernels/base", "comm", "comm/reader"],
    "daemon/ctl": ["daemon/ctl", "daemon", "daemon/model", "daemon/tokenizer", "config", "kernels", "kernels/base",
                   "comm", "comm/reader"],
}
# The only headers of comm that the model and the tokenizer may see: nothing with a socket in it.
COMM_FOR_THE_MODEL = ["comm/bootstrap.h", "comm/collectives.h", "comm/shard_plan.h", "comm/shared_memory.h"]
# Headers that clients copy: they need the C++ standard library and nothing else.
STANDALONE = ["comm/reader/gemmad_reader.h"]
# (what the include looks like, name, where it may be). A place is a file or a layer.
EXTERNAL = [
    (r"mpi\.h$", "MPI", ["comm/bootstrap_mpi.cpp"]),
    (r"nccl\.h$", "NCCL", ["comm"]),
    (r"(sys/socket|sys/un|netdb)\.h$|netinet/|arpa/", "sockets",
     ["comm", "comm/reader", "comm/reader/example", "daemon", "daemon/ctl", "tests"]),
    (r"nlohmann/", "JSON",
     ["config", "comm", "comm/reader", "daemon", "daemon/model", "daemon/tokenizer", "daemon/ctl", "tests"]),
    (r"utf8proc\.h$", "Unicode's tables", ["daemon/tokenizer"]),
    (r"spdlog/", "logging", ["comm", "daemon", "daemon/ctl", "tests"]),
]
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include\b[ \t]*(?:"([^"\n]*)"|<([^>\n]*)>|([^\n]*))', re.MULTILINE)


def layer_of(path):
    """The longest layer that holds `path` (relative, with slashes), "tests", or None."""
    layers = [layer for layer in ALLOWED if path.startswith(layer + "/")]
    return max(layers, key=len) if layers else ("tests" if path.startswith("tests/") else None)


def includes_of(text):
    """[(line, path, quoted)] of a file's text; path is None where a macro stands for it."""

    def blank(match):
        found = match.group(0)
        return found if found.startswith('"') else "\n" * found.count("\n")

    text = COMMENT_OR_STRING.sub(blank, text)
    found = []
    for match in INCLUDE.finditer(text):
        quoted, angled, _ = match.groups()
        line = text.count("\n", 0, match.start()) + 1
        found.append((line, quoted if quoted is not None else angled, quoted is not None))
    return found


def judge(path, target):
    """Why the project file `path` must not include the project file `target`; None if it may."""
    if path in STANDALONE:
        return f"must stand alone, but includes {target}"
    layer, other = layer_of(path), layer_of(target)
    if layer == "tests":
        return None
    if other not in ALLOWED[layer]:
        return f"{layer} must not include {target}: it may see {', '.join(ALLOWED[layer])}"
    if layer in ("daemon/model", "daemon/tokenizer") and other == "comm" and target not in COMM_FOR_THE_MODEL:
        return f"{layer} must not include {target}: of comm it may see {', '.join(COMM_FOR_THE_MODEL)}"
    return None


def judge_external(path, target):
    """Why `path` must not include the outside header `target`; None if it may."""
    layer = layer_of(path)
    if path in STANDALONE and re.search(r"[./]", target):
        return f"must stand alone, but includes <{target}>"
    for pattern, name, places in EXTERNAL:
        if re.match(pattern, target) and path not in places and layer not in places:
            return f"includes <{target}>: {name} may be seen in {', '.join(places)} alone"
    return None


def find_cycle(graph):
    """A list of files that include each other in a ring, first = last; None if there is none."""
    done = set()
    for start in sorted(graph):
        trail = []
        stack = [(start, iter(graph[start]))] if start not in done else []
        trail += [start] if stack else []
        while stack:
            following = next(stack[-1][1], None)
            if following is None:
                stack.pop()
                done.add(trail.pop())
            elif following in trail:
                return trail[trail.index(following):] + [following]
            elif following not in done:
                trail.append(following)
                stack.append((following, iter(graph.get(following, ()))))
    return None


def check(root):
    """All findings in the tree at `root`, as lines of text."""
    folders = sorted({layer.split("/")[0] for layer in ALLOWED} | {"tests"})
    files = {path.relative_to(root).as_posix(): path for folder in folders for path in sorted((root / folder).rglob("*"))
             if path.suffix in SUFFIXES}
    if not files:
        return [f"{root}: no sources found: name the root of the tree"]
    findings, graph = [], {}
    for name, path in files.items():
        graph[name] = []
        for line, target, quoted in includes_of(path.read_text(encoding="utf-8")):
            if target is None:
                problem = "includes through a macro: write the path out"
            elif ".." in target.split("/"):
                problem = f"includes {target}: write the path from the root"
            elif target in files:
                graph[name].append(target)
                problem = judge(name, target)
            elif quoted:
                problem = f"includes \"{target}\", which is not there: write the path from the root, others as <{target}>"
            else:
                problem = judge_external(name, target)
            if problem:
                findings.append(f"{name}:{line}: {problem}")
    cycle = find_cycle(graph)
    if cycle:
        findings.append(f"{cycle[0]}: includes itself: {' -> '.join(cycle)}")
    return findings


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    findings = check(root)
    print("\n".join(findings) if findings else "includes: all in the right direction")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
