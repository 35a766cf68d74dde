"""Puts gemmad_client in reach of tests, and tells loudly what is skipped where torch is missing."""

import importlib.util
import os
import sys
import unittest
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "scripts" / "python" / "src"
sys.path.insert(0, str(SOURCES))
HAS_TORCH = importlib.util.find_spec("torch") is not None


def needs_torch(case):
    """A class of tests that is skipped without torch."""
    if not HAS_TORCH:
        print(f"SKIPPED: {case.__name__}: {sys.executable} has no torch", file=sys.stderr)
    return unittest.skipUnless(HAS_TORCH, "torch is not installed")(case)


def environment(**more):
    """For programs that import the package."""
    return {**os.environ, "PYTHONPATH": str(SOURCES), **more}
