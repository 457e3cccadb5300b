"""A process that watermarks one picture after another, as lines of JSON ask for it.

It is started with its settings as one argument, answers each line on standard output, and ends
with its input, or with the process that started it.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from foundation.child_process import be_killed_before_parent, die_with_parent
from node_agent.capabilities.image_watermark.options import Layout, WatermarkOptions
from node_agent.capabilities.image_watermark.refusals import ImageRefused
from node_agent.capabilities.image_watermark.watermarker import Watermarker

_STANDARD_OUTPUT: Final = 1
_STANDARD_ERROR: Final = 2


def main() -> None:
    """Serve until the input ends."""
    settings = json.loads(sys.argv[1])
    die_with_parent(settings["parent_pid"])
    be_killed_before_parent()
    # What a library prints must not get between the answers.
    answers = os.fdopen(os.dup(_STANDARD_OUTPUT), "wb")
    os.dup2(_STANDARD_ERROR, _STANDARD_OUTPUT)
    options = WatermarkOptions(**{**settings["options"], "layout": Layout(settings["layout"])})
    watermarker = Watermarker(settings["text"], options)
    for line in sys.stdin.buffer:
        source, destination = json.loads(line)
        answer = _answer(watermarker, Path(source), Path(destination))
        answers.write(json.dumps(answer).encode("ascii") + b"\n")
        answers.flush()


def _answer(watermarker: Watermarker, source: Path, destination: Path) -> dict[str, Any]:
    try:
        return {"made": asdict(watermarker.watermark_image(source, destination))}
    except ImageRefused as refusal:
        return {"refused": [str(refusal.reason), refusal.message]}
    except OSError as error:
        return {"failed": [error.errno, error.strerror]}


if __name__ == "__main__":
    main()
