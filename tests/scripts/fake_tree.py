"""A throw-away source tree for the tests of the checks over the tree."""

import tempfile
import unittest
from pathlib import Path


class FakeTree(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)

    def add(self, files):
        """Writes {path: text or bytes} below the root."""
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
