"""Settings: arguments first, then ENGRAMMA_* variables, then engramma.toml, then the defaults."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engramma.errors import InvalidInput

NAMES = ("db", "space", "llm", "embedder")
FILE = "engramma.toml"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting in force and where it came from."""

    value: Any
    source: str


def default_path() -> str:
    """Where a memory lies when nobody says: the user's data folder, made if need be."""
    from platformdirs import user_data_path

    return str(user_data_path("engramma", ensure_exists=True) / "memory.db")


def settings(given: Mapping[str, Any], folder: Path | None = None) -> dict[str, Setting]:
    """Each setting in force. Raises InvalidInput for an engramma.toml that cannot be read."""
    file = (folder or Path.cwd()) / FILE
    kept = _file_settings(file)
    return {name: _one(name, given, kept, file) for name in NAMES}


def _one(name: str, given: Mapping[str, Any], kept: Mapping[str, Any], file: Path) -> Setting:
    variable = f"ENGRAMMA_{name.upper()}"
    if given.get(name) is not None:
        return Setting(given[name], "argument")
    if os.environ.get(variable):
        return Setting(os.environ[variable], variable)
    if name in kept:
        return Setting(kept[name], str(file))
    return Setting({"db": default_path, "space": lambda: "default"}.get(name, lambda: None)(), "default")


def _file_settings(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        data = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{str(file)!r} is not valid TOML: {error}") from error
    if unknown := set(data) - set(NAMES):
        raise InvalidInput(f"{str(file)!r} has the unknown setting {sorted(unknown)[0]!r}: it takes {', '.join(NAMES)}")
    if isinstance(data.get("space"), list):
        data["space"] = tuple(data["space"])
    return data
