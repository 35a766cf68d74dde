"""Images as requests carry them."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

from .fields import Json


def image_field(image: Any) -> Json:
    """`image`: uint8 [H, W, 3] of numpy or torch, or a PNG or JPEG: its path, or its bytes. Raises ValueError, OSError."""
    if isinstance(image, (str, os.PathLike)):
        image = Path(image).read_bytes()
    if isinstance(image, (bytes, bytearray, memoryview)):
        return {"file": base64.b64encode(image).decode()}
    shape = [int(extent) for extent in getattr(image, "shape", ())]
    kind = str(getattr(image, "dtype", type(image).__name__)).removeprefix("torch.")
    if len(shape) != 3 or shape[2] != 3 or kind != "uint8":
        raise ValueError(f"an image is uint8 [H, W, 3], a path or the bytes of a PNG or JPEG; this one is {kind} {shape}")
    pixels = image.cpu().numpy() if hasattr(image, "cpu") else image
    return {"shape": shape, "data": base64.b64encode(pixels.tobytes()).decode()}
