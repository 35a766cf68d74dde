#!/usr/bin/env python3
"""Fails on what no compiler sees: a test that nobody runs, a README that names a missing file, a stray file.

Usage: check_tree.py [ROOT]. Prints PATH: reason for each finding; exit status 1 if there is one.
"""

import os
import re
import sys
from pathlib import Path

FOLDERS = ["comm", "config", "daemon", "kernels", "scripts", "tests"]
TOP_LEVEL = set(FOLDERS) | {"CMakeLists.txt", "CMakePresets.json", "README.md", ".ci", ".clang-format", ".clang-tidy",
                            ".gitignore", ".gitattributes", ".git"}
IGNORED = {"build", ".cache", "compile_commands.json", "__pycache__", ".git"}
SOURCE_SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".py", ".sh"}
MAX_LINES = 400
MAX_FILE_BYTES = 4 << 20
# Split, so that this file does not hold what it looks for.
FORBIDDEN = [(re.compile(r"(?<![\w}.])/" + folder + r"/"), "a path of one machine") for folder in ("work", "root")]
FORBIDDEN += [(re.compile(address), "the address of a package registry")
              for address in ("pypi" + r"\.org", "python" + r"hosted\.org", "registry" + r"\.npm")]
VARIABLES = re.compile(r"\$\{(PROJECT_SOURCE_DIR|CMAKE_SOURCE_DIR|CMAKE_CURRENT_SOURCE_DIR|CMAKE_CURRENT_LIST_DIR)\}")
README_PATH = re.compile(r"^(?:\./)?((?:" + "|".join(FOLDERS) + r"|\.ci)/[\w./*+-]*)$")


def walk(root):
    """All files below `root` as relative paths with slashes, build outputs left out."""
    found = []
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = sorted(name for name in subfolders if name not in IGNORED)
        found += [(Path(folder) / name).relative_to(root).as_posix() for name in sorted(files) if name not in IGNORED]
    return found


def named_in_cmake(root, files):
    """The files that some CMakeLists.txt names, comments left out."""
    named = set()
    for name in files:
        if Path(name).name != "CMakeLists.txt":
            continue
        folder = root / Path(name).parent
        bases = {"PROJECT_SOURCE_DIR": root, "CMAKE_SOURCE_DIR": root}
        text = re.sub(r"#[^\n]*", "", (root / name).read_text(encoding="utf-8"))
        for word in re.findall(r"[^\s()\"]+\.(?:cpp|py)\b", text):
            path = folder / VARIABLES.sub(lambda match: str(bases.get(match.group(1), folder)), word)
            named.add(os.path.relpath(os.path.normpath(path), root))
    return named


def check_registered(root, files):
    named = named_in_cmake(root, files)
    for name in files:
        is_test = name.startswith("tests/") and name.endswith("_test.py")
        if (name.endswith(".cpp") or is_test) and not name.startswith("tests/data/") and name not in named:
            yield f"{name}: no CMakeLists.txt names it, so nobody builds or runs it"


def check_readme(root, files):
    if "README.md" not in files:
        yield "README.md: missing"
        return
    text = (root / "README.md").read_text(encoding="utf-8")
    fenced = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
    rest = fenced.sub("", text)
    code = fenced.findall(text) + re.findall(r"`([^`\n]+)`", rest) + re.findall(r"^ {4}(.*)$", rest, re.MULTILINE)
    for word in sorted({word.rstrip(".,;:") for part in code for word in part.split()}):
        match = README_PATH.match(word)
        if match and not any(root.glob(match.group(1).rstrip("/"))):
            yield f"README.md: names {word}, which is not there"


def check_text(root, files):
    for name in files:
        if name.startswith("tests/data/"):
            continue
        try:
            text = (root / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            for pattern, what in FORBIDDEN:
                if pattern.search(line):
                    yield f"{name}:{number}: holds {what}"
        lines = text.count("\n")
        is_source = Path(name).suffix in SOURCE_SUFFIXES and not name.startswith("tests/")
        if is_source and lines > MAX_LINES and not re.search(r"^\s*(//|#) Long because ", text, re.MULTILINE):
            yield f"{name}: has {lines} lines, more than {MAX_LINES}: split it, or say why in a line '// Long because ...'"
        if text.startswith("#!") and not os.access(root / name, os.X_OK):
            yield f"{name}: begins with #! but is not executable"


def check_places(root, files):
    for name in sorted(os.listdir(root)):
        if name not in TOP_LEVEL and name not in IGNORED:
            yield f"{name}: does not belong at the top: the folders are {', '.join(FOLDERS)}"
    for name in files:
        size_bytes = (root / name).stat().st_size
        if size_bytes > MAX_FILE_BYTES:
            yield f"{name}: has {size_bytes} bytes, more than {MAX_FILE_BYTES}: make it smaller or compress it"


def check(root):
    """All findings in the tree at `root`, as lines of text."""
    files = walk(root)
    if not any(name.endswith(".cpp") for name in files):
        return [f"{root}: no sources found: name the root of the tree"]
    return [finding for part in (check_registered, check_readme, check_text, check_places)
            for finding in part(root, files)]


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    findings = check(root)
    print("\n".join(findings) if findings else "tree: nothing to say")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
