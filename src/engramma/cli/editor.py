"""A text in the user's own editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from engramma.errors import InvalidInput


def edited(text: str) -> str | None:
    """The text as the editor left it, None when the editor gave up. Raises InvalidInput without one."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ("notepad" if sys.platform == "win32" else "vi")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "note.txt"
        file.write_text(text, "utf-8")
        try:
            done = subprocess.run([*shlex.split(command), str(file)], check=False)
        except OSError as error:
            raise InvalidInput(f"the editor {command!r} cannot be started: set EDITOR, or use --content") from error
        after = file.read_text("utf-8")
    if done.returncode != 0:
        return None
    return after if text.endswith("\n") else after.removesuffix("\n")  # editors end a file with one
