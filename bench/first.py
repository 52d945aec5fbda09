"""Open a memory and search twice, in a process of its own: ``python -m bench.first FILE`` prints seconds as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.corpus import LookupEmbedder
from bench.figures import timed
from bench.shelf import open_memory
from engramma import Memory

QUESTIONS = ("Where does Lin live now?", "How did we fix the CSRF error on Safari?")


def main(path: Path) -> None:
    """Time opening, a first and a second search."""
    embedder = LookupEmbedder()
    embedder.learn(QUESTIONS)
    opened: list[Memory] = []
    seconds = {"open": timed(lambda: opened.append(open_memory(path, embedder)))}
    with opened[0] as memory:
        for name, question in zip(("first", "second"), QUESTIONS, strict=True):
            seconds[name] = timed(lambda question=question: memory.search(question))  # type: ignore[misc]
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
