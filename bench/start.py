"""How long a process takes that imports engramma, or shows its help, beyond a bare Python.

``import engramma`` loads little: the names in it are loaded on first use. So the first of them is
measured too.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.figures import Options, Row, in_turn, milliseconds

ROUNDS = 7
TITLES: dict[str, tuple[str, int | None]] = {
    "import": ("import engramma", 150),
    "memory": ("from engramma import Memory", None),
    "help": ("engramma --help", 400),
}
_HELP = "import sys; from engramma.cli import main; sys.argv = ['engramma', '--help']; main()"


def run(options: Options) -> Iterator[Row]:
    """Whole processes, in turn, so that each is compared with a bare one beside it."""
    del options
    script = Path(sys.executable).with_name("engramma")
    commands = {
        "bare": [sys.executable, "-c", "pass"],
        "import": [sys.executable, "-c", "import engramma"],
        "memory": [sys.executable, "-c", "from engramma import Memory"],
        "help": [str(script), "--help"] if script.exists() else [sys.executable, "-c", _HELP],
    }
    for command in commands.values():
        _process(command, 0)  # byte code written, files in the cache
    times = in_turn({name: partial(_process, command) for name, command in commands.items()}, ROUNDS)
    yield milliseconds("bare python", list(times["bare"]))
    for name, (title, target) in TITLES.items():
        beyond = [whole - bare for whole, bare in zip(times[name], times["bare"], strict=True)]
        yield milliseconds(f"{title}, beyond bare python", beyond, below=target)


def _process(command: list[str], _: int) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=tempfile.gettempdir())
