"""The command line: every command, its JSON, its exit codes, its manners in a pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from time import perf_counter
from typing import Any

import pytest
from typer.testing import CliRunner

from engramma import Memory
from engramma.cli.app import app
from engramma.cli.group import exit_code, hoisted
from engramma.cli.layout import label_places, shelves
from engramma.cli.screen import clean, plain
from engramma.errors import EmbedderMismatch, InvalidInput, ModelTimeout, NotAMemory, StoreFull, UnknownId

BUG = "The login page fails with a CSRF error on Safari."
FIX = "Fixed the CSRF login error on Safari: the session cookie needed SameSite=Lax."
CHENGDU = "我搬到成都了，现在住在成都。"


class Shell:
    """Runs commands on one memory file with a fast embedder."""

    def __init__(self, db: Path) -> None:
        self.db = db

    def run(self, *args: str, stdin: str | bytes | None = None, code: int = 0) -> Any:
        result = CliRunner().invoke(app, ["--db", str(self.db), "--embedder", "hash:256", *args], input=stdin)
        assert result.exit_code == code, (args, result.output, result.exception)
        return result

    def json(self, *args: str, **more: Any) -> Any:
        return json.loads(self.run(*args, "--json", **more).stdout)

    def add(self, text: str, *args: str) -> str:
        return str(self.json("add", text, *args)["id"])


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("ENGRAMMA_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    Memory.open(tmp_path / "memory.db", embedder="hash:256").close()
    return Shell(tmp_path / "memory.db")


@pytest.fixture
def filled(shell: Shell) -> tuple[Shell, str, str, str]:
    ids = shell.add(BUG, "--speaker", "Lin", "--tag", "bug"), shell.add(FIX, "--speaker", "Lin"), shell.add(CHENGDU)
    return shell, *ids


def started(*args: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from engramma.cli import main; main()", *args]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=60, **more)


# -- the program


def test_help_is_fast_and_loads_no_memory() -> None:
    code = "import sys; from engramma.cli.app import app; print('engramma.memory' in sys.modules, 'numpy' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == ["False", "False"]
    took = []
    for _ in range(3):
        begun = perf_counter()
        assert "Exit codes" in started("--help").stdout
        took.append(perf_counter() - begun)
    assert min(took) < 1.0  # 0.2 s on an idle machine


def test_version() -> None:
    from engramma import __version__

    assert started("--version").stdout.strip() == f"engramma {__version__}"


def test_process_from_add_to_search(tmp_path: Path) -> None:
    place = ("--db", str(tmp_path / "m.db"), "--embedder", "hash:256")
    added = started("add", *place, "-", input=CHENGDU)
    assert added.returncode == 0
    assert added.stderr == ""
    found = started("search", "现在住在成都", "--json", *place)
    assert json.loads(found.stdout)["hits"][0]["note"]["content"] == CHENGDU
    nothing = started("search", "quarterly tax audit", *place)
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert nothing.stderr.startswith("engramma: nothing here")


def test_reader_that_had_enough_is_no_failure(tmp_path: Path) -> None:
    place = ["--db", str(tmp_path / "m.db"), "--embedder", "hash:256"]
    started("add", "--lines", *place, input="\n".join(f"line number {count} of many" for count in range(60)))
    command = [sys.executable, "-c", "from engramma.cli import main; main()", "log", "--full", "-n", "0", *place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_global_options_stand_anywhere() -> None:
    assert hoisted(["search", "x", "--db", "a.db", "--space=b"]) == ["--db", "a.db", "--space=b", "search", "x"]
    assert hoisted(["add", "--", "--db", "x"]) == ["add", "--", "--db", "x"]
    assert hoisted(["list", "--db"]) == ["--db", "list"]


@pytest.mark.parametrize(
    ("error", "code"),
    [(InvalidInput("x"), 2), (UnknownId("x"), 3), (NotAMemory("x"), 4), (StoreFull("x"), 4), (EmbedderMismatch("x"), 4),
     (FileNotFoundError(2, "x"), 4), (ModelTimeout("x"), 5)],
)  # fmt: skip
def test_exit_codes(error: Exception, code: int) -> None:
    assert exit_code(error) == code


@pytest.mark.parametrize(
    "args", [["bogus"], ["search"], ["list", "--bad"], ["search", "x", "-k", "many"], ["search", "x", "-k", "0"]]
)
def test_usage_errors_are_one_line(shell: Shell, args: list[str]) -> None:
    result = shell.run(*args, code=2)
    assert result.stderr.startswith("engramma: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


# -- add


def test_add_says_what_the_analyst_made_of_it(shell: Shell) -> None:
    first = shell.add(BUG, "--speaker", "Lin")
    result = shell.run("add", *FIX.split(), "--speaker", "Lin", "--metadata", '{"ticket": 7}', "--importance", "5")
    assert "keywords" in result.stdout
    assert "solves" in result.stdout
    assert "Solved on" in result.stdout
    assert first in result.stdout
    note = shell.json("show", result.stdout.split()[0])
    assert (note["content"], note["metadata"], note["importance"]) == (FIX, {"ticket": 7}, 5)


@pytest.mark.parametrize("args", [[], ["-"]])
def test_add_reads_standard_input(shell: Shell, args: list[str]) -> None:
    added = shell.json("add", *args, stdin="  两行\n文字\n")
    assert added["note"]["content"] == "  两行\n文字"
    assert added["commits"][0]["changes"][0]["type"] == "put_note"


def test_add_from_a_file_whole_or_by_lines(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "diary.txt"
    file.write_text(f"{BUG}\n\n{CHENGDU}\n", "utf-8")
    assert shell.json("add", "--file", str(file))["note"]["content"].count("\n") == 3
    assert [one["note"]["content"] for one in shell.json("add", "--file", str(file), "--lines")] == [BUG, CHENGDU]
    assert len(shell.run("add", "--file", str(file), "--lines").stdout.splitlines()) == 2
    shell.run("add", "--file", str(file), "and words", code=2)
    shell.run("add", "--file", str(tmp_path / "none.txt"), code=2)


@pytest.mark.parametrize(
    "args",
    [["   "], ["x", "--importance", "9"], ["x", "--metadata", "{"], ["x", "--metadata", "[]"], ["x", "--at", "no time"],
     ["--lines", "\n"], ["a\nb", "--lines", "--key", "k"]],
)  # fmt: skip
def test_add_refuses(shell: Shell, args: list[str]) -> None:
    assert shell.run("add", *args, code=2).stderr.startswith("engramma: ")
    assert shell.json("list") == []


def test_add_refuses_bytes_that_are_not_text(shell: Shell) -> None:
    assert "not UTF-8" in shell.run("add", stdin=b"\xff\xfe\x80", code=2).stderr


def test_add_with_a_known_key_or_said_before(shell: Shell) -> None:
    first = shell.add(BUG, "--key", "k1", "--speaker", "Lin")
    result = shell.run("add", "something else", "--key", "k1")
    assert result.stdout.split()[0] == first
    assert "the key 'k1' is in use" in result.stderr
    again = shell.run("add", BUG, "--speaker", "Lin")
    assert "said before" in again.stderr
    assert again.stdout.split()[0] == first


def test_a_text_that_cannot_be_stored_is_not_lost(tmp_path: Path) -> None:
    result = Shell(tmp_path / "no folder" / "m.db").run("add", "--lines", stdin=f"{CHENGDU}\nand more\n", code=4)
    assert result.stderr.startswith("engramma: there is no folder")
    assert result.stderr.endswith(f"{CHENGDU}\nand more\n")


# -- search, show, list


def test_search(filled: tuple[Shell, str, str, str]) -> None:
    shell, bug, _, chengdu = filled
    lines = shell.run("search", "CSRF", "error", "on", "Safari").stdout
    assert bug in lines
    assert "why  meaning" in lines
    found = shell.json("search", "现在住在成都")
    assert found["query"] == "现在住在成都"
    assert found["hits"][0]["note"]["id"] == chengdu
    assert {"dense", "lexical", "words", "direct", "text", "path"} <= set(found["hits"][0]["why"])
    assert "vector" not in found["hits"][0]["note"]


def test_search_marks_linked_hits(filled: tuple[Shell, str, str, str]) -> None:
    shell, *_ = filled
    both = shell.run("search", "session cookie SameSite", "-k", "1").stdout
    assert "↳" in both
    assert "linked from number 1 (solves" in both
    assert "↳" not in shell.run("search", "session cookie SameSite", "-k", "1", "--no-expand").stdout


def test_search_options(filled: tuple[Shell, str, str, str]) -> None:
    shell, bug, _, _ = filled
    only = shell.json("search", "login error", "--where", '{"tags": {"$in": ["bug"]}}', "--no-expand", "--min-relevance", "0")
    assert bug in [hit["note"]["id"] for hit in only["hits"]]
    assert shell.json("search", "login", "--until", "2001-01-01", code=1)["hits"] == []
    assert shell.json("search", "login", "--as-of", "2001-01-01", code=1)["declined"]
    block = shell.run("search", "CSRF", "login", "--context", "300").stdout
    assert block.startswith("<memories")
    shell.run("search", "login", "--where", "{bad", code=2)
    shell.run("search", "login", "--where", '{"nope": 1}', code=2)
    shell.run("search", "login", "--include", "nope", code=2)


def test_show_a_note_and_a_commit(filled: tuple[Shell, str, str, str]) -> None:
    shell, bug, fix, _ = filled
    card = shell.run("show", bug).stdout
    assert BUG in card
    assert "← solves" in card
    assert shell.json("show", bug.lower())["links"][0]["source"] == fix
    assert (
        shell.json("show", bug, "--as-of", shell.json("log", "--note", bug)[-1]["id"])["tags"]
        == shell.json("history", bug)[0]["note"]["tags"]
    )
    commit = shell.json("log", "--note", fix)[0]["id"]
    card = shell.run("show", commit).stdout
    assert "revised" in card
    assert "− " in card
    assert "+ " in card
    assert shell.json("show", commit)["id"] == commit


def test_ids_by_a_unique_beginning(filled: tuple[Shell, str, str, str]) -> None:
    shell, bug, fix, _ = filled
    length = next(size for size in range(6, 27) if bug[:size] != fix[:size])
    assert shell.json("show", bug[: max(length + 1, 20)])["id"] in (bug, fix)
    shell.run("show", bug[:5], code=3)
    assert "begins" in shell.run("show", bug[:6], code=2).stderr
    assert "no note and no commit" in shell.run("show", "01ZZZZZZZZ", code=3).stderr
    commit = shell.json("log", "-n", "1")[0]["id"]
    assert shell.json("show", commit[:25])["id"].startswith(commit[:25])


def test_list(filled: tuple[Shell, str, str, str]) -> None:
    shell, bug, fix, chengdu = filled
    assert [note["id"] for note in shell.json("list")] == [bug, fix, chengdu]
    assert [note["id"] for note in shell.json("list", "--newest", "-n", "1")] == [chengdu]
    assert [note["id"] for note in shell.json("list", "--where", '{"speaker": "Lin"}')] == [bug, fix]
    lines = shell.run("list").stdout.splitlines()
    assert len(lines) == 3
    assert CHENGDU in lines[2]
    assert "\x1b" not in "".join(lines)


def test_an_empty_list_is_no_failure(shell: Shell) -> None:
    assert shell.run("list").stdout == ""
    assert shell.json("list") == shell.json("log") == []


def test_spaces_are_walls(shell: Shell) -> None:
    hers = shell.add(BUG, "--space", "team/a")
    assert shell.json("list") == []
    assert [note["id"] for note in shell.json("list", "--space", "team/a")] == [hers]
    shell.run("show", hers[:20], code=3)
    assert shell.json("stats")["spaces"] == {"team/a": 1}
    assert shell.json("stats", "--space", "default")["notes"] == 0


# -- change


def test_edit(filled: tuple[Shell, str, str, str]) -> None:
    shell, bug, _, _ = filled
    out = shell.run("edit", bug, "--tag", "web", "--tag", "urgent", "--importance", "5", "--pin", "--speaker", "Marta").stdout
    assert "+web  +urgent" in out
    note = shell.json("show", bug)
    assert (note["tags"], note["importance"], note["pinned"], note["speaker"]) == (["web", "urgent"], 5, True, "Marta")
    shell.run("edit", bug, "--unpin", "--tag", "")
    assert (shell.json("show", bug)["pinned"], shell.json("show", bug)["tags"]) == (False, [])
    shell.run("edit", bug, "--content", " ", code=2)
    shell.run("edit", "01ZZZZZZZZ", "--pin", code=3)


def test_edit_in_an_editor(filled: tuple[Shell, str, str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shell, _, _, chengdu = filled
    script = tmp_path / "editor.py"
    script.write_text(
        "import sys, pathlib; p = pathlib.Path(sys.argv[1])\np.write_text(p.read_text('utf-8') + '很好\\n', 'utf-8')\n"
    )
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")
    shell.run("edit", chengdu)
    assert shell.json("show", chengdu)["content"] == CHENGDU + "很好"
    monkeypatch.setenv("EDITOR", f"{sys.executable} -c 0")
    assert "nothing was changed" in shell.run("edit", chengdu).stderr
    monkeypatch.setenv("EDITOR", "no-such-editor-here")
    assert "cannot be started" in shell.run("edit", chengdu, code=2).stderr


def test_rm_asks_and_revert_brings_back(filled: tuple[Shell, str, str, str]) -> None:
    shell, bug, _, chengdu = filled
    shell.run("rm", bug, stdin="n\n", code=1)
    shell.run("rm", bug, stdin="", code=2)
    shell.run("rm", bug, stdin="y\n")
    assert bug not in [note["id"] for note in shell.json("list")]
    shell.run("rm", bug, "--yes", code=3)
    commit = shell.json("log", "-n", "1")[0]["id"]
    assert "revised" in shell.run("revert", commit).stdout
    assert bug in [note["id"] for note in shell.json("list")]
    shell.run("rm", "--yes", "--purge", chengdu)
    shell.run("show", chengdu, code=3)
    assert shell.run("revert", shell.json("log", "-n", "1")[0]["id"], code=2).stderr.startswith("engramma: cannot revert")
    shell.run("revert", "01ZZZZZZZZ", code=3)


def test_link(filled: tuple[Shell, str, str, str]) -> None:
    shell, bug, _, chengdu = filled
    made = shell.json("link", bug, chengdu, "--kind", "causes", "--reason", "为了安静", "--strength", "0.4")
    assert (made["source"], made["target"], made["kind"], made["reason"]) == (bug, chengdu, "causes", "为了安静")
    assert "为了安静" in shell.run("link", chengdu).stdout
    assert [link["kind"] for link in shell.json("link", chengdu)] == ["causes"]
    shell.run("link", bug, chengdu, "--remove", "--kind", "supports", code=3)
    assert "unlink" in shell.run("link", bug, chengdu, "--remove").stdout
    assert shell.json("link", chengdu) == []
    shell.run("link", bug, chengdu, "--strength", "7", code=2)
    assert "linked" in shell.run("link", bug, chengdu).stdout


def test_history_and_log(filled: tuple[Shell, str, str, str]) -> None:
    shell, bug, fix, _ = filled
    revisions = shell.json("history", bug)
    assert [revision["revision"] for revision in revisions] == [1, 2]
    assert revisions[1]["commit"] == shell.json("log", "--note", fix)[0]["id"]
    assert "solved" in shell.run("history", bug).stdout
    commits = shell.json("log")
    assert [commit["seq"] for commit in commits] == sorted((commit["seq"] for commit in commits), reverse=True)
    assert {"id", "at", "actor", "reason", "changes", "tokens"} <= set(commits[0])
    assert len(shell.run("log", "-n", "2").stdout.splitlines()) == 2
    assert "Solved on" in shell.run("log", "--full").stdout
    shell.run("history", "01ZZZZZZZZ", code=3)


# -- keep in order


def test_stats_and_check(filled: tuple[Shell, str, str, str]) -> None:
    shell, *_ = filled
    counted = shell.json("stats")
    assert (counted["notes"], counted["embedder"], counted["tokens"]) == (3, "hash:256", 0)
    assert "hash:256" in shell.run("stats").stdout
    assert shell.json("check") == {"ok": True, "problems": []}
    assert shell.run("check").stdout.startswith("sound")


def test_check_lists_problems(filled: tuple[Shell, str, str, str]) -> None:
    import sqlite3

    shell, *_ = filled
    with sqlite3.connect(shell.db) as db:
        db.execute("DELETE FROM vector")
    db.close()
    outcome = shell.json("check", code=1)
    assert outcome["problems"]
    assert shell.run("check", code=1).stdout.startswith("problem")


def test_reindex_whatever_the_settings_say(filled: tuple[Shell, str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    shell, *_ = filled
    assert "hash:64" in shell.run("reindex", "--embedder", "hash:64").stdout
    assert "hash:64" in shell.run("list", code=4).stderr
    shell.run("reindex")
    assert shell.json("stats")["embedder"] == "hash:256"


def test_catch_up_without_anything_to_read(filled: tuple[Shell, str, str, str]) -> None:
    assert filled[0].run("catch-up").stdout == "0 notes read, 0 wait\n"


class _Refusing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_error(401)

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def refusing() -> Iterator[str]:
    """The address of a model server that lets nobody in."""
    with HTTPServer(("127.0.0.1", 0), _Refusing) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1#none"
        server.shutdown()
        thread.join()


def test_a_model_that_refuses(tmp_path: Path, refusing: str) -> None:
    place = ("--db", str(tmp_path / "m.db"), "--embedder", "hash:256")
    model = ("--llm", refusing)
    added = started("add", BUG, *place, *model)
    assert added.returncode == 0
    assert "pending" in added.stdout
    assert added.stderr.startswith("engramma: ")
    waits = started("catch-up", *place, *model)
    assert (waits.returncode, waits.stdout) == (5, "0 notes read, 1 wait\n")
    assert started("catch-up", *place).stdout == "1 notes read, 0 wait\n"


def test_export_and_load(filled: tuple[Shell, str, str, str], tmp_path: Path) -> None:
    shell, bug, *_ = filled
    file = tmp_path / "out.jsonl"
    shell.run("export", str(file))
    other = Shell(tmp_path / "other.db")
    assert other.run("load", str(file)).stdout == "3 new notes\n"
    assert other.run("load", str(file)).stdout == "0 new notes\n"
    assert other.json("show", bug)["links"] == shell.json("show", bug)["links"]
    shell.run("load", str(tmp_path / "none.jsonl"), code=2)
    shell.run("export", str(tmp_path / "no" / "out.jsonl"), code=4)
    file.write_text('{"broken', "utf-8")
    shell.run("load", str(file), code=2)


def test_not_a_memory(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("something else " * 100, "utf-8")
    result = Shell(file).run("list", code=4)
    assert result.stderr.startswith("engramma: ")
    assert "Traceback" not in result.output
    assert file.read_text("utf-8").startswith("something else")


def test_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "engramma.toml").write_text('llm = "ollama:qwen2.5:7b"\n')
    monkeypatch.setenv("ENGRAMMA_SPACE", "alice")
    result = CliRunner().invoke(app, ["config", "--json", "--db", "a.db"])
    shown = json.loads(result.stdout)
    assert shown["settings"]["db"] == {"value": "a.db", "source": "argument"}
    assert shown["settings"]["space"] == {"value": "alice", "source": "ENGRAMMA_SPACE"}
    assert shown["settings"]["llm"]["source"].endswith("engramma.toml")
    assert shown["file"] == {"path": str(tmp_path / "engramma.toml"), "exists": True}
    assert "alice" in CliRunner().invoke(app, ["config"]).stdout
    assert not (tmp_path / "a.db").exists()


# -- graph


def test_graph_as_json(filled: tuple[Shell, str, str, str], tmp_path: Path) -> None:
    networkx = pytest.importorskip("networkx")
    shell, bug, fix, _ = filled
    shell.run("graph", str(tmp_path / "g.json"))
    data = json.loads((tmp_path / "g.json").read_text("utf-8"))
    assert data == shell.json("graph")
    made = networkx.node_link_graph(data, edges="links")
    assert made.edges[fix, bug, "solves"]["reason"]


def test_graph_as_graphml(filled: tuple[Shell, str, str, str], tmp_path: Path) -> None:
    networkx = pytest.importorskip("networkx")
    shell, _, _, chengdu = filled
    shell.run("graph", str(tmp_path / "g.graphml"))
    assert networkx.read_graphml(tmp_path / "g.graphml").nodes[chengdu]["content"] == CHENGDU


def test_graph_as_a_picture(filled: tuple[Shell, str, str, str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    filled[0].run("graph", str(tmp_path / "g.png"))
    assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")


def test_graph_refuses(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shell.run("graph", code=2)
    shell.run("graph", "g.gif", code=2)
    monkeypatch.setitem(sys.modules, "networkx", None)
    assert "engramma[graph]" in shell.run("graph", "g.graphml", code=2).stderr


def test_an_empty_picture(shell: Shell, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    shell.run("graph", str(tmp_path / "g.png"))
    assert (tmp_path / "g.png").stat().st_size > 0


def test_shelves_keep_squares_apart() -> None:
    sides = [3.0, 2.0, 2.0, 1.0, 1.0, 1.0]
    corners, width, height = shelves(sides)
    boxes = [(x, y, x + side, y + side) for side, (x, y) in zip(sides, corners, strict=True)]
    assert all(box[2] <= width and box[3] <= height for box in boxes)
    pairs = [(one, two) for number, one in enumerate(boxes) for two in boxes[number + 1 :]]
    assert not any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for a, b in pairs)


def test_labels_give_way() -> None:
    dots = {"a": (0.0, 0.0), "b": (0.1, 0.0), "c": (9.0, 9.0)}
    places = label_places(dict.fromkeys(dots, "a long label"), dots, line=1.0, letter=0.5, reach=1.0)
    assert {"a", "c"} <= set(places)
    assert len(set(places.values())) == len(places)


# -- demo and manners


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAMMA_EMBEDDER", "hash:8")
    monkeypatch.setenv("ENGRAMMA_LLM", "nonsense")
    result = CliRunner().invoke(app, ["demo", "--keep", "kept.db"])
    assert result.exit_code == 0, result.output
    assert "as expected" in result.stdout
    assert "$ engramma revert" in result.stdout
    assert "--db kept.db search" in result.stdout
    again = CliRunner().invoke(app, ["demo", "--keep", "kept.db"])
    assert again.exit_code == 2


def test_text_cannot_steer_the_terminal(shell: Shell) -> None:
    assert clean("a\x1b[31mb\x07\u202ec\n\td") == "a\ufffd[31mb\ufffd\ufffdc\n\td"
    shell.add("red \x1b[31m alert [bold]not markup[/bold]")
    out = shell.run("list").stdout
    assert "\x1b" not in out
    assert "[bold]not markup[/bold]" in out


def test_plain_values() -> None:
    from datetime import datetime

    assert plain({("a", "b"): datetime(2026, 1, 2, tzinfo=UTC)}) == {"a/b": "2026-01-02T00:00:00+00:00"}
    assert plain((1, {"x": (None,)})) == [1, {"x": [None]}]


@pytest.mark.parametrize("args", [("search", "kettle"), ("list",), ("stats",), ("rm", "01ABCDEF", "--yes")])
def test_a_mistyped_path_makes_no_memory(tmp_path: Path, args: tuple[str, ...]) -> None:
    result = Shell(tmp_path / "typo.db").run(*args, code=4)
    assert "typo.db" in result.stderr
    assert not (tmp_path / "typo.db").exists()
