#!/usr/bin/env python3
"""Makes the image files of this folder, and expected.safetensors with what Pillow and torch make of them.

Usage: generate.py FOLDER. Needs Pillow, numpy and torch, none of which the tests need. Made with Pillow 12.1
(libjpeg-turbo 3.1, lcms2 2.17) and torch 2.15: Pillow 13 resizes along y first where that is less work.
"""

import io
import json
import math
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageCms

HEIGHT, WIDTH = 29, 37
ROTATIONS = {3: 180, 6: 270, 8: 90}
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def seeded_pixels(height, width, channels=3, seed=1):
    """The bytes that seeded_image() of the C++ test makes too."""
    out, state = bytearray(), seed
    for _ in range(height * width * channels):
        state = (state * 1664525 + 1013904223) % 2**32
        out.append(state >> 24)
    return np.frombuffer(bytes(out), np.uint8).reshape(height, width, channels)


def smooth(channels):
    """A picture that JPEG keeps well, with its four corners unlike each other."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    planes = [255 * x / (WIDTH - 1), 255 * y / (HEIGHT - 1), 127 + 127 * np.sin(x / 5 + y / 7), 100 * x * y / (HEIGHT * WIDTH)]
    return np.stack(planes[:channels], -1).astype(np.uint8)


# PNG files that Pillow does not write: 2, 4 and 16 bits, and interlaced.

def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def pack_rows(samples, depth):
    """[H, W, C] of `depth` bits as rows, each after its filter byte."""
    out = b""
    for row in samples:
        flat = row.reshape(-1)
        if depth == 16:
            out += b"\0" + flat.astype(">u2").tobytes()
        elif depth == 8:
            out += b"\0" + flat.astype(np.uint8).tobytes()
        else:
            bits = (flat[:, None] >> np.arange(depth - 1, -1, -1)) & 1
            out += b"\0" + np.packbits(bits.reshape(-1)).tobytes()
    return out


def png(samples, depth, interlaced=False, extra=(), colour_type=None, size=None):
    height, width, channels = samples.shape
    colour_type = {1: 0, 2: 4, 3: 2, 4: 6}[channels] if colour_type is None else colour_type
    passes = [(0, 8, 0, 8), (0, 8, 4, 8), (4, 8, 0, 4), (0, 4, 2, 4), (2, 4, 0, 2), (0, 2, 1, 2), (1, 2, 0, 1)]
    parts = [samples[y0::dy, x0::dx] for y0, dy, x0, dx in passes] if interlaced else [samples]
    data = b"".join(pack_rows(part, depth) for part in parts if part.size)
    header = struct.pack(">IIBBBBB", *(size or (width, height)), depth, colour_type, 0, 0, int(interlaced))
    return (PNG_SIGNATURE + chunk(b"IHDR", header) + b"".join(chunk(*e) for e in extra) +
            chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b""))


# Colour profiles.

def s15(value):
    return struct.pack(">i", round(value * 65536))


def profile(space, connection, tags):
    """An ICC profile, version 2, of (name, body) tags."""
    body, table, at = b"", struct.pack(">I", len(tags)), 128 + 4 + 12 * len(tags)
    for name, content in tags:
        content += b"\0" * (-len(content) % 4)
        table += name + struct.pack(">II", at + len(body), len(content))
        body += content
    size = at + len(body)
    kind = b"prtr" if space == b"CMYK" else b"mntr"
    header = struct.pack(">I4sI", size, b"\0" * 4, 0x02400000) + kind + space + connection + b"\0" * 12 + b"acsp"
    header = header.ljust(68, b"\0") + s15(0.9642) + s15(1) + s15(0.8249)
    return header.ljust(128, b"\0") + table + body


def xyz(x, y, z):
    return b"XYZ \0\0\0\0" + s15(x) + s15(y) + s15(z)


def gamma(value):
    return b"curv\0\0\0\0" + struct.pack(">IH", 1, round(value * 256))


def text(words):
    return b"desc\0\0\0\0" + struct.pack(">I", len(words) + 1) + words + b"\0" * 79


WHITE = (b"wtpt", xyz(0.9642, 1, 0.8249))
WIDE_RGB = profile(b"RGB ", b"XYZ ", [
    (b"desc", text(b"wide")), WHITE, (b"rXYZ", xyz(0.6097, 0.3111, 0.0195)), (b"gXYZ", xyz(0.2053, 0.6257, 0.0609)),
    (b"bXYZ", xyz(0.1492, 0.0632, 0.7446)), *[(name, gamma(1.8)) for name in (b"rTRC", b"gTRC", b"bTRC")]])
DARK_GREY = profile(b"GRAY", b"XYZ ", [(b"desc", text(b"grey")), WHITE, (b"kTRC", gamma(1.2))])


def ink_profile():
    """CMYK to Lab by a table of 2^4 points: lightness falls with every ink, and each ink has a hue."""
    line = bytes(range(256))
    points = b""
    for i in range(16):
        c, m, y, k = (i >> 3) & 1, (i >> 2) & 1, (i >> 1) & 1, i & 1
        light = max(250 - 60 * c - 70 * m - 20 * y - 160 * k, 5)
        points += bytes([light, 128 + (-40 * c + 60 * m) * (1 - k), 128 + (-40 * c + 70 * y) * (1 - k)])
    body = b"mft1\0\0\0\0" + bytes([4, 3, 2, 0]) + b"".join(s15(float(i % 4 == 0)) for i in range(9))
    return profile(b"CMYK", b"Lab ", [(b"desc", text(b"inks")), WHITE, (b"A2B0", body + line * 4 + points + line * 3)])


def exif(orientation, order=">"):
    mark = b"MM" if order == ">" else b"II"
    return mark + struct.pack(order + "HIHHHIHHI", 42, 8, 1, 0x0112, 3, 1, orientation, 0, 0)


def saved(image, form, **options):
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def repeat_scan(jpeg, times):
    """The file with its first scan `times` times more."""
    begin = jpeg.index(b"\xff\xda")
    end = begin + 2
    while not (jpeg[end] == 0xFF and jpeg[end + 1] not in (0, *range(0xD0, 0xD8))):
        end += 1
    return jpeg[:end] + jpeg[begin:end] * times + jpeg[end:]


def image_files():
    rgb, rgba, grey, inks = (Image.fromarray(smooth(3)), Image.fromarray(smooth(4)), Image.fromarray(smooth(1)[..., 0]),
                             Image.fromarray(smooth(4), "CMYK"))
    palette = rgb.quantize(16)
    wide = seeded_pixels(HEIGHT, WIDTH, 8, seed=3).reshape(HEIGHT, WIDTH, 4, 2).astype(int) @ [256, 1]
    few = seeded_pixels(HEIGHT, WIDTH, 1, seed=4).astype(int)
    files = {
        "rgb.png": saved(rgb, "PNG"), "rgba.png": saved(rgba, "PNG"), "grey.png": saved(grey, "PNG"),
        "grey_alpha.png": saved(Image.fromarray(smooth(4)[..., 2:], "LA"), "PNG"),
        "palette.png": saved(palette, "PNG"), "palette_transparent.png": saved(palette, "PNG", transparency=3),
        "palette_profile.png": saved(palette, "PNG", icc_profile=WIDE_RGB),
        "grey_1_bit.png": saved(grey.convert("1"), "PNG"),
        "grey_2_bits.png": png(few >> 6, 2), "grey_4_bits.png": png(few >> 4, 4),
        "rgb_transparent_colour.png": png(smooth(3), 8, extra=[(b"tRNS", b"\0\0\0\0\0\x7f")]),
        "grey_16_bits.png": png(wide[..., :1], 16), "rgb_16_bits.png": png(wide[..., :3], 16),
        "rgba_16_bits.png": png(wide, 16), "grey_alpha_16_bits.png": png(wide[..., :2], 16),
        "rgb_interlaced.png": png(smooth(3), 8, True), "grey_alpha_interlaced.png": png(smooth(4)[..., 2:], 8, True),
        "palette_interlaced.png": png(few >> 4, 4, True, [(b"PLTE", smooth(3)[5, :16].tobytes())], 3),
        "rgb_16_bits_interlaced.png": png(wide[..., :3], 16, True),
        "rgb_profile.png": saved(rgb, "PNG", icc_profile=WIDE_RGB),
        "rgba_profile.png": saved(rgba, "PNG", icc_profile=WIDE_RGB),
        "grey_profile.png": saved(grey, "PNG", icc_profile=DARK_GREY),
        "exif_6.png": saved(rgb, "PNG", exif=exif(6)), "one.png": saved(Image.fromarray(smooth(3)[5:6, 7:8]), "PNG"),
        "line.png": saved(Image.fromarray(seeded_pixels(1, 10000) // 64 * 64), "PNG"),
        "profile_bomb.png": png(smooth(3), 8, extra=[(b"iCCP", b"x\0\0" + zlib.compress(bytes(40_000_000), 9))]),
        "text_bomb.png": png(smooth(3), 8, extra=[(b"zTXt", b"x\0\0" + zlib.compress(bytes(40_000_000), 9))]),
        "rgb.jpg": saved(rgb, "JPEG"), "rgb_444.jpg": saved(rgb, "JPEG", quality=95, subsampling=0),
        "grey.jpg": saved(grey, "JPEG"), "cmyk.jpg": saved(inks, "JPEG", quality=95),
        "progressive.jpg": saved(rgb, "JPEG", progressive=True),
        "rgb_profile.jpg": saved(rgb, "JPEG", icc_profile=WIDE_RGB),
        "grey_profile.jpg": saved(grey, "JPEG", icc_profile=DARK_GREY),
        "cmyk_profile.jpg": saved(inks, "JPEG", quality=95, icc_profile=ink_profile()),
        "profile_of_other_colours.jpg": saved(rgb, "JPEG", icc_profile=ink_profile()),
        "broken_profile.jpg": saved(rgb, "JPEG", icc_profile=seeded_pixels(10, 100, 1).tobytes()),
        "many_scans.jpg": repeat_scan(saved(rgb, "JPEG", progressive=True), 60),
    }
    for orientation in range(1, 9):
        order = ">" if orientation % 2 else "<"
        files[f"exif_{orientation}.jpg"] = saved(rgb, "JPEG", exif=b"Exif\0\0" + exif(orientation, order))
    return files


def decode(name, data):
    """As LTX-2 decodes a file, but for grey of 16 bits: see daemon/image/png_file.h."""
    image = Image.open(io.BytesIO(data))
    if image.mode == "I;16":
        return np.repeat((np.array(image) >> 8).astype(np.uint8)[..., None], 3, -1)
    orientation = image.getexif().get(0x0112)
    if orientation in ROTATIONS:
        image = image.rotate(ROTATIONS[orientation], expand=True)
    icc = image.info.get("icc_profile")
    image = image.convert({"RGBA": "RGB", "LA": "L"}.get(image.mode, image.mode))
    if icc:
        try:
            source = ImageCms.ImageCmsProfile(io.BytesIO(icc))
            image = ImageCms.profileToProfile(image, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
        except (ImageCms.PyCMSError, OSError, ValueError) as error:
            print(f"{name}: {error}")
    return np.array(image.convert("RGB"))


def long_side(pixels, side):
    """LTX-2's first resize."""
    height, width, _ = pixels.shape
    scale = side / float(max(height, width))
    target_h, target_w = int(height * scale), int(width * scale)
    scale = max(target_h / height, target_w / width)
    size = math.ceil(height * scale), math.ceil(width * scale)
    planes = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None]
    out = torch.nn.functional.interpolate(planes, size=size, mode="bilinear", align_corners=False)[0].permute(1, 2, 0)
    top, left = (size[0] - target_h) // 2, (size[1] - target_w) // 2
    return np.ascontiguousarray(out[top:top + target_h, left:left + target_w].numpy())


def pillow(pixels, height, width):
    return np.array(Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR))


def resized():
    tensors = {}
    for height, width, side in [(73, 100, 64), (100, 73, 160), (1, 1, 7), (5, 3, 40), (64, 48, 64), (90, 11, 60), (17, 96, 96)]:
        tensors[f"long_side.{height}.{width}.{side}"] = long_side(seeded_pixels(height, width), side)
    for height, width, *size in [(73, 100, 56, 56), (7, 5, 56, 56), (56, 9, 56, 56), (9, 56, 56, 56), (1, 1, 8, 8),
                                 (300, 2, 28, 28), (3, 200, 42, 42)]:
        tensors[f"pillow.{height}.{width}.{size[0]}.{size[1]}"] = pillow(seeded_pixels(height, width), *size)
    tensors["prompt.50.40.56"] = pillow(long_side(seeded_pixels(50, 40), 896), 56, 56)
    return tensors


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, tensor in sorted(tensors.items()):
        header[name] = {"dtype": "U8", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + tensor.nbytes]}
        data += tensor.tobytes()
    text_header = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text_header)) + text_header + data)


def main():
    folder = Path(sys.argv[1])
    (folder / "files").mkdir(parents=True, exist_ok=True)
    tensors = resized()
    for name, data in image_files().items():
        (folder / "files" / name).write_bytes(data)
        if "bomb" not in name and name != "many_scans.jpg":
            tensors[name] = decode(name, data)
    tensors["profile_bomb.png"] = tensors["text_bomb.png"] = smooth(3)
    write_safetensors(folder / "expected.safetensors", tensors)


if __name__ == "__main__":
    main()
