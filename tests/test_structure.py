"""The shape of the code: which way imports point, where SQL and prompts stand, how long things are."""

from __future__ import annotations

import ast
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import engramma

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "engramma"
FILES = sorted(PACKAGE.rglob("*.py"))

# From the surfaces down to the values. A module imports from the lines below its own, and from its own package.
LAYERS = (
    ("cli", "testing.conformance"),
    ("agents", "compat"),
    ("aio",),
    ("memory",),
    ("authoring", "opening", "tending"),
    ("past",),
    ("ledger",),
    ("exchange", "reindexing", "report", "settings"),
    ("worker",),
    ("write",),
    ("recall", "draft"),
    ("nearest",),
    ("choosing",),
    ("plan", "scoring", "expand", "context", "reranking"),
    ("analysts", "store", "upkeep"),
    ("models", "testing"),
    ("background", "testing.models"),
    ("tracing",),
    ("models.base", "commit", "filters"),
    ("dates",),
    ("note", "words", "errors"),
)
LONGEST_MODULE, LONGEST_FUNCTION = 500, 60
LONG_MODULES: set[str] = set()
LONG_FUNCTIONS: set[str] = set()
UNDOCUMENTED: set[str] = set()
STATEMENT = re.compile(
    r"^\s*(SELECT\s.+\sFROM\b|SELECT\s+(count|max|min|1)\b|INSERT\s+(OR\s+\w+\s+)?INTO\b|UPDATE\s+\w+\s+SET\b"
    r"|DELETE\s+FROM\b|CREATE\s+(TABLE|INDEX)\b|PRAGMA\s)",
    re.DOTALL,
)


def module(file: Path) -> str:
    """A file's dotted name below the package, "" for the package itself."""
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"), str(file))


def walked(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker sees."""
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        for child in node.orelse:
            yield from walked(child)
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from walked(child)


def imports(file: Path) -> set[str]:
    """Our own modules that a file imports, at its head or in a function."""
    names: set[str] = set()
    for node in walked(tree(file)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: name the module in full"
            names |= {full for alias in node.names for full in imported(node.module or "", alias.name)}
    return {name.removeprefix("engramma.") for name in names if name.startswith("engramma.")}


def imported(source: str, name: str) -> set[str]:
    """The module that ``from source import name`` loads: a submodule of that name, or the source."""
    place = ROOT / "src" / Path(*source.split("."), name)
    return {f"{source}.{name}"} if place.is_dir() or place.with_suffix(".py").is_file() else {source}


def line_of(name: str) -> int:
    """The number of the line in LAYERS that holds a module or the nearest package of it."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        for number, layer in enumerate(LAYERS):
            if ".".join(parts[:length]) in layer:
                return number
    raise AssertionError(f"{name} stands in no line of LAYERS")


def functions(file: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{module(file)}.{node.name}", node


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """The string literals of a file with their lines, docstrings left out; of an f-string what is fixed."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {ast.get_docstring(node, clean=False) for node in ast.walk(tree(file)) if isinstance(node, documented)}
    inside: set[int] = set()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            yield node.lineno, "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside and node.value not in docs:
            yield node.lineno, node.value


# -- imports


@pytest.mark.parametrize("file", [file for file in FILES if module(file)], ids=module)
def test_imports_point_one_way(file: Path) -> None:
    here = module(file)
    line = line_of(here)
    for there in imports(file):
        one_package = here.split(".")[0] == there.split(".")[0] and line == line_of(there)
        assert one_package or line_of(there) > line, f"{here} imports {there}, which is not below it"


def test_package_imports_none_of_its_modules() -> None:
    assert not imports(PACKAGE / "__init__.py")


def test_architecture_page_names_every_module() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    named = set(re.findall(r"`([a-z_]+)(?:\.py|/)`", page))
    there = {module(file).split(".")[0] for file in FILES} - {""}
    assert not there - named, "not on the page"
    below = {file.stem for file in FILES if "." in module(file)} | {"migrations"}
    assert not named - there - below, "on the page only"


def test_every_line_of_the_layers_is_in_use() -> None:
    there = {module(file) for file in FILES}
    assert {name for layer in LAYERS for name in layer} <= there


def test_importing_engramma_is_light() -> None:
    code = (
        "import sys, engramma; print(*(name for name in ('numpy', 'sqlite3', 'openai', 'rich', 'typer') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_every_module_imports_without_a_socket() -> None:
    for found in pkgutil.walk_packages(engramma.__path__, "engramma."):
        import_module(found.name)


# -- names


def test_all_can_be_imported() -> None:
    for name in engramma.__all__:
        assert getattr(engramma, name) is not None
    assert set(engramma.__all__) <= set(dir(engramma))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = engramma.nonsense


def test_what_a_type_checker_sees_is_what_there_is() -> None:
    seen = {alias.asname for node in ast.walk(tree(PACKAGE / "__init__.py")) if isinstance(node, ast.ImportFrom)
            for alias in node.names if alias.asname}  # fmt: skip
    assert seen | {"__version__"} == set(engramma.__all__)


def test_public_things_have_docstrings() -> None:
    assert {name for file in FILES for name in undocumented(tree(file), module(file))} == UNDOCUMENTED
    assert not [module(file) for file in FILES if tree(file).body and not ast.get_docstring(tree(file))]


def undocumented(node: ast.Module | ast.ClassDef, name: str) -> Iterator[str]:
    """Public classes, functions and methods without a docstring; tests and what a protocol explains are left out."""
    for child in node.body:
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or child.name.startswith(("_", "test_")):
            continue
        explained = isinstance(node, ast.ClassDef) and child.name in declared() and not is_protocol(node)
        if not ast.get_docstring(child) and not explained:
            yield f"{name}.{child.name}"
        if isinstance(child, ast.ClassDef):
            yield from undocumented(child, f"{name}.{child.name}")


def is_protocol(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base) == "Protocol" for base in node.bases)


@cache
def declared() -> frozenset[str]:
    """The methods that our protocols declare: what they say there is not repeated in each class that has them."""
    classes = [node for file in FILES for node in tree(file).body if isinstance(node, ast.ClassDef) and is_protocol(node)]
    return frozenset(child.name for node in classes for child in node.body if isinstance(child, ast.FunctionDef))


# -- where things stand


@pytest.mark.parametrize("file", [file for file in FILES if "store" not in file.relative_to(PACKAGE).parts[:-1]], ids=module)
def test_sql_stands_only_under_store(file: Path) -> None:
    assert not [(line, text) for line, text in texts(file) if STATEMENT.search(text)]


def test_sql_would_be_seen() -> None:
    found = [text for file in FILES if "store" in file.parts for _, text in texts(file) if STATEMENT.search(text)]
    assert len(found) > 10


@pytest.mark.parametrize("file", [file for file in FILES if "analysts" not in file.parts], ids=module)
def test_prompts_stand_only_under_analysts(file: Path) -> None:
    """A prompt is a message with a role, or a long text that tells somebody what to do."""
    told = re.compile(r"\b(You are|Reply with|Answer with|Return only|Respond with)\b")
    assert not [(line, text[:80]) for line, text in texts(file) if told.search(text)]
    roles = {"system", "user", "assistant"}
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Dict):
            pairs = {key.value: value for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant)}
            role = pairs.get("role")
            assert not (isinstance(role, ast.Constant) and role.value in roles), f"line {node.lineno}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: module(file) or "engramma")
def test_no_broad_except(file: Path) -> None:
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.ExceptHandler):
            caught = set(re.findall(r"\w+", ast.unparse(node.type))) if node.type else {"Exception"}
            assert not caught & {"Exception", "BaseException"}, f"line {node.lineno}"


def test_migrations_are_numbered_without_gaps() -> None:
    names = sorted(file.name for file in (PACKAGE / "store" / "migrations").iterdir() if not file.name.startswith("__"))
    assert names == [f"{number:04}.sql" for number in range(1, len(names) + 1)]
    assert names


# -- how long things are


def test_no_module_is_too_long() -> None:
    long = {module(file) for file in FILES if len(file.read_text("utf-8").splitlines()) > LONGEST_MODULE}
    assert long == LONG_MODULES


def test_no_function_is_too_long() -> None:
    long = {name for file in FILES for name, node in functions(file)
            if (node.end_lineno or node.lineno) - node.lineno >= LONGEST_FUNCTION}  # fmt: skip
    assert long == LONG_FUNCTIONS
