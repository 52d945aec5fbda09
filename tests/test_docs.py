"""The documents: what they show runs as shown, what they name exists, and what there is to name is in them."""

from __future__ import annotations

import ast
import doctest
import inspect
import json
import os
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from engramma import Memory, __version__
from engramma.cli.app import app
from engramma.cli.group import EPILOG, hoisted

ROOT = Path(__file__).parent.parent
DOCS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "llms.txt"])
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
SHELL_DOCS = [*READMES, ROOT / "docs" / "cli.md", ROOT / "docs" / "history.md"]
CLI_PAGE = (ROOT / "docs" / "cli.md").read_text("utf-8")
ID = "01..."  # an id that a reader replaces by one of theirs
CHECKER = doctest.OutputChecker()
COMMANDS: Any = typer.main.get_command(app)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def every(paths: list[Path]) -> Any:
    return pytest.mark.parametrize("path", paths, ids=name)


def blocks(path: Path, language: str) -> list[str]:
    return [body for kind, body in _BLOCK.findall(path.read_text("utf-8")) if kind == language]


def prose(path: Path) -> str:
    return _BLOCK.sub("", path.read_text("utf-8"))


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine is read, and nothing outside is written."""
    for variable in [variable for variable in os.environ if variable.startswith("ENGRAMMA_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("ENGRAMMA_DB", str(tmp_path / "shell.db"))
    monkeypatch.chdir(tmp_path)


# -- Python


@every([path for path in DOCS if ">>> " in path.read_text("utf-8")])
def test_sessions_run_as_shown(path: Path) -> None:
    sessions = "\n\n".join(block for block in blocks(path, "python") if ">>> " in block)
    example = doctest.DocTestParser().get_doctest(sessions, {}, name(path), str(path), 0)
    assert example.examples
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    failed = runner.run(example, out=said.append, clear_globs=False).failed
    for value in example.globs.values():
        if isinstance(value, Memory):
            value.close()
    assert not failed, "".join(said)


@every([path for path in DOCS if blocks(path, "python")])
def test_other_python_compiles(path: Path) -> None:
    for block in blocks(path, "python"):
        if ">>> " not in block:
            compile(block, name(path), "exec")


def test_readmes_show_sessions() -> None:
    for path in READMES:
        assert any(">>> " in block for block in blocks(path, "python")), name(path)


def calls(text: str) -> Iterator[ast.Call]:
    """The calls on ``memory`` that stand between backticks, with a value for each "…"."""
    for code in re.findall(r"`(?:memory = )?((?:memory|Memory)\.\w+\(.*?\))`", text):
        filled = re.sub(r"(\w=)…", r"\1None", code).replace(", …", "").replace("…", "None")
        call = ast.parse(filled.replace("[...]", "[]"), mode="eval").body
        assert isinstance(call, ast.Call), code
        yield call


@every(DOCS)
def test_calls_that_are_named_exist(path: Path) -> None:
    for call in calls(prose(path)):
        assert isinstance(call.func, ast.Attribute)
        signature = inspect.signature(vars(Memory)[call.func.attr].__get__(object(), Memory))
        signature.bind(*call.args, **{keyword.arg: keyword.value for keyword in call.keywords if keyword.arg})


def test_llms_names_exist() -> None:
    text = (ROOT / "llms.txt").read_text("utf-8")
    named = set(re.findall(r"\bmemory\.(\w+)\(", text))
    assert {"add", "search", "revert", "history"} <= named
    assert not [method for method in named if not hasattr(Memory, method)]
    assert list(calls(text)), "no call was read"


# -- the command line


def command_lines(path: Path) -> list[str]:
    """The lines that a reader types, comments left out."""
    shell = "\n".join(blocks(path, "console")).splitlines()
    return [re.sub(r"\s+# .*", "", line[2:]) for line in shell if line.startswith("$ engramma")]


def named_commands(path: Path) -> set[str]:
    """What stands between backticks, or quotes of a message, and begins with the program's name."""
    return set(re.findall(r"`(engramma [a-z-][^`]*)`", prose(path)))


def parse(line: str) -> None:
    """Parse a whole command line without running it. Raises what the program would complain of."""
    words = hoisted(shlex.split(line)[1:])
    while words and words[0].startswith("--"):
        option = next(param for param in COMMANDS.params if words[0] in param.opts)
        words = words[1 if option.is_flag else 2 :]
    if words:
        command = COMMANDS.commands[words[0]]
        values, rest, _ = command.make_parser(command.context_class(command)).parse_args(words[1:])
        assert not rest, f"too much in {line!r}"
        missing = [param.name for param in command.params if param.required and not values.get(param.name)]
        assert not missing, f"{missing} missing in {line!r}"


@every(SHELL_DOCS)
def test_command_lines_parse(path: Path) -> None:
    lines = command_lines(path)
    assert lines
    for line in lines:
        parse(line)


@every(DOCS)
def test_commands_that_are_named_exist(path: Path) -> None:
    for text in named_commands(path):
        words = text.split()[1:]
        command = COMMANDS if words[0].startswith("-") else COMMANDS.commands[words[0]]
        options = {word.partition("=")[0] for word in words if word.startswith("-")}
        assert options <= spellings(command) | spellings(COMMANDS), text


class Shell:
    """Runs what a document shows, in order, on one memory; "01..." becomes the id of a note or a commit."""

    def run(self, line: str) -> Any:
        return CliRunner().invoke(app, self.filled(shlex.split(line)[1:]))

    def filled(self, words: list[str]) -> list[str]:
        if ID not in words:
            return words
        ids = self.ids("log" if words[0] == "revert" else "list")
        return [next(ids) if word == ID else word for word in words]

    def ids(self, command: str) -> Iterator[str]:
        found = CliRunner().invoke(app, [command, "--json"])
        return iter([one["id"] for one in json.loads(found.stdout)])


def steps(path: Path) -> list[tuple[str, str]]:
    """Each command line with the output shown below it, "" for none."""
    found: list[tuple[str, str]] = []
    for block in blocks(path, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            if line.startswith("engramma"):
                found.append((re.sub(r"\s+# .*", "", line), output))
    return found


@every(SHELL_DOCS)
def test_command_lines_run_as_shown(path: Path) -> None:
    shell = Shell()
    for line, shown in steps(path):
        done = shell.run(line)
        assert done.exit_code == (1 if "nothing here" in shown else 0), (line, done.output, done.exception)
        if shown.strip():
            same = CHECKER.check_output(shown, done.output, doctest.ELLIPSIS)
            assert same, f"$ {line}\n{done.output}\nis shown as\n{shown}"


def spellings(command: Any) -> set[str]:
    """Every way to write an option of a command."""
    options = [param for param in command.params if param.param_type_name == "option"]
    return {text for param in options for text in [*param.opts, *param.secondary_opts]} | {"--help", "-h"}


@cache
def sections() -> dict[str, str]:
    """The page of the command line by its headings; a command's heading is cut to its name."""
    parts = re.split(r"^###? (.*)\n", CLI_PAGE, flags=re.MULTILINE)
    named = [re.sub(r"`engramma ([\w-]+).*`", r"\1", heading) for heading in parts[1::2]]
    return dict(zip(named, parts[2::2], strict=True))


@pytest.mark.parametrize("command", sorted(COMMANDS.commands))
def test_page_names_every_option_of(command: str) -> None:
    named = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", sections()[command]))
    everywhere = {"--help", "-h", "--db", "--space", "--llm", "--embedder"}
    there = spellings(COMMANDS.commands[command]) - everywhere
    assert not there - named, "not on the page"
    assert not named - there - everywhere, "on the page only"


def test_page_names_every_global_option() -> None:
    named = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", sections()["Everywhere"]))
    assert named == spellings(COMMANDS)


def test_page_has_no_other_commands() -> None:
    headed = set(re.findall(r"^### `engramma ([\w-]+)", CLI_PAGE, re.MULTILINE))
    assert headed == set(COMMANDS.commands)


def test_page_shows_what_a_command_takes() -> None:
    for command, parameters in COMMANDS.commands.items():
        heading = re.search(rf"^### `engramma {command}\b ?(.*)`", CLI_PAGE, re.MULTILINE)
        arguments = [param.metavar for param in parameters.params if param.param_type_name == "argument"]
        assert heading is not None
        assert heading[1] == " ".join(arguments), command


def test_page_has_the_exit_codes_of_the_help() -> None:
    listed = re.findall(r"^\| (\d+) \| ", sections()["Exit codes"], re.MULTILINE)
    assert listed == re.findall(r"(\d+) [a-z]", EPILOG)


SHAPES = {
    "add": ["add", "a kettle in the kitchen"], "search": ["search", "kettle"], "list": ["list"], "history": ["history", ID],
    "log": ["log"], "revert": ["revert", ID], "link": ["link", ID], "show": ["show", ID], "graph": ["graph"],
    "stats": ["stats"], "check": ["check"], "config": ["config"], "explain": ["explain", ID], "compact": ["compact", "--dry-run"],
    "tend": ["tend", "--dry-run"],
}  # fmt: skip


def keys(value: Any) -> set[str]:
    """All names in a JSON value that are not of the user's own making."""
    if isinstance(value, list):
        return {key for item in value for key in keys(item)}
    if not isinstance(value, dict):
        return set()
    own = {"spaces", "given", "metadata", "before", "after"}
    return set(value) | {key for name, item in value.items() if name not in own for key in keys(item)}


def test_page_names_every_key_of_the_json() -> None:
    shell = Shell()
    page = set(re.findall(r"\w+", sections()["JSON"]))
    for first in ("I live in Lyon, near Place Bellecour.", "I moved to Berlin in May."):
        shell.run(f'engramma add "{first}" --speaker Ana')
    for command, words in SHAPES.items():
        done = CliRunner().invoke(app, [*shell.filled(words), "--json"])
        assert done.exit_code == 0, (command, done.output)
        assert not keys(json.loads(done.stdout)) - page, command
        assert f"| `{command}` |" in sections()["JSON"]
    assert set(SHAPES) == {name for name, command in COMMANDS.commands.items() if "--json" in spellings(command)}


def test_page_names_every_setting() -> None:
    from engramma.settings import NAMES

    rows = re.findall(r"^\| `--(\w+)` \| `(ENGRAMMA_\w+)` \| `(\w+)` \|", sections()["Settings"], re.MULTILINE)
    assert rows == [(setting, f"ENGRAMMA_{setting.upper()}", setting) for setting in NAMES]


def test_file_of_settings_is_read(tmp_path: Path) -> None:
    from engramma.settings import settings

    (example,) = blocks(ROOT / "docs" / "cli.md", "toml")
    (tmp_path / "engramma.toml").write_text(example, "utf-8")
    force = settings({}, tmp_path)
    assert force["space"].value == ("team", "support")


# -- the rest


def test_changelog_begins_with_this_version() -> None:
    versions = re.findall(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert versions[0] == __version__


@every(DOCS)
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)\s#]+)[^)]*\)", prose(path))
    inside = [target for target in targets if "://" not in target and not target.startswith("mailto:")]
    assert not [target for target in inside if not (path.parent / target).exists()]


@every(DOCS)
def test_make_targets_exist(path: Path) -> None:
    there = set(re.findall(r"^([a-z]\w*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    text = path.read_text("utf-8")
    assert set(re.findall(r"(?:`|^\$ )make ([\w-]+)", text, re.MULTILINE)) <= there


def test_every_page_of_the_docs_is_linked_from_the_readme() -> None:
    text = READMES[0].read_text("utf-8")
    assert not [page for page in ROOT.glob("docs/*.md") if f"]({name(page)})" not in text]
