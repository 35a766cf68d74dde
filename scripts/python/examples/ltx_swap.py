#!/usr/bin/env python3
"""LTX-2's distilled pipeline with gemmad for its text encoder: encodes a prompt, and tells the shapes of its embeddings.

    ltx_swap.py --socket /run/gemmad/control.sock --prompt "a dog runs" KEY=VALUE...

In a runner of several GPUs the one line of install() goes, on every rank, where the runner replaces the builder.
gemmad_client.ltx.install() makes the swap; without it these are the lines, beside those of LTX-2's own runners:

    LTX-2                                                            gemmad
    builder = AccelerateGemmaBuilder(...)                            builder = GemmadGemmaBuilder(FleetEncoder(socket))
    prompt_encoder._text_encoder_builder = builder                   the same
    prompt_encoder._enhancer_text_encoder_builder = builder          the same, where both were one builder before
"""

import argparse
from typing import Any

from gemmad_client.ltx import install


def load_pipeline(arguments: dict[str, str]) -> Any:
    from ltx_pipelines.distilled import DistilledPipeline  # type: ignore[import-not-found,unused-ignore]

    return DistilledPipeline(**arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--socket", required=True, help="gemmad's control socket")
    parser.add_argument("--prompt", required=True)
    parser.add_argument("arguments", nargs="*", metavar="KEY=VALUE", help="of the pipeline's constructor")
    options = parser.parse_args()

    pipeline = load_pipeline(dict(argument.split("=", 1) for argument in options.arguments))
    builder = install(pipeline, options.socket, wait_s=60)
    (result,) = pipeline.prompt_encoder([options.prompt])
    print(f"level {builder.level}: video {tuple(result.video_encoding.shape)}, audio {tuple(result.audio_encoding.shape)}")


if __name__ == "__main__":
    main()
