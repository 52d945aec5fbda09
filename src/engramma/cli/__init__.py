"""The command line: each command is one verb of ``Memory``, in words."""

from __future__ import annotations


def main() -> None:
    """Run ``engramma``. The commands load here, so that importing this module costs nothing."""
    from engramma.cli.app import app

    app(prog_name="engramma")
