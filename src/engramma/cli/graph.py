"""``engramma graph``: notes and links as a file for other programs, or as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engramma.cli.opening import json_option, opened
from engramma.cli.search import AsOf, Json, WhereOption
from engramma.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from engramma.note import Note

ENDINGS = (".graphml", ".json", ".png")


def graph(
    ctx: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Ends in .graphml, .json or .png.", show_default=False)
    ] = None,
    where: WhereOption = None,
    as_of: AsOf = None,
    as_json: Json = False,
) -> None:
    """Write the network of notes as GraphML, JSON (node-link) or a PNG picture, by the file's ending."""
    if file is None and not as_json:
        raise InvalidInput(f"name a file that ends in {', '.join(ENDINGS)}, or give --json for standard output")
    if file is not None and file.suffix.lower() not in ENDINGS:
        raise InvalidInput(f"{str(file)!r} ends in none of {', '.join(ENDINGS)}")
    with opened(ctx) as memory:
        notes = memory.list(where=json_option("where", where), as_of=as_of)
    network = node_link(notes)
    if file is not None:
        _write(file, network)
        typer.echo(f"{len(network['nodes'])} notes and {len(network['links'])} links written to {file}", err=True)
    if as_json:
        from engramma.cli.screen import print_json

        print_json(network)


def node_link(notes: Sequence[Note]) -> dict[str, Any]:
    """Notes and the links among them in networkx's node-link form."""
    from engramma.cli.screen import plain

    there = {note.id for note in notes}
    links = {link.ends: link for note in notes for link in note.links if {link.source, link.target} <= there}
    edges = [
        {"source": link.source, "target": link.target, "key": link.kind, "kind": link.kind, "reason": link.reason,
         "strength": link.strength}
        for link in links.values()
    ]  # fmt: skip
    return {"directed": True, "multigraph": True, "graph": {}, "nodes": plain([_node(note) for note in notes]), "links": edges}


def _node(note: Note) -> dict[str, Any]:
    names = (
        "id",
        "space",
        "content",
        "at",
        "speaker",
        "session",
        "tags",
        "keywords",
        "context",
        "category",
        "importance",
        "state",
    )
    return {name: getattr(note, name) for name in names}


def _write(file: Path, network: dict[str, Any]) -> None:
    match file.suffix.lower():
        case ".json":
            import json

            file.write_text(json.dumps(network, ensure_ascii=False, indent=2) + "\n", "utf-8")
        case ".graphml":
            _networkx().write_graphml(as_graph(network), file)
        case _:
            from engramma.cli.picture import draw

            draw(as_graph(network), file)


def _networkx() -> Any:
    try:
        import networkx
    except ImportError as error:
        raise MissingExtra("networkx", "graph", "writing a graph") from error
    return networkx


def as_graph(network: dict[str, Any]) -> Any:
    """The same as a networkx MultiDiGraph whose attributes are texts and numbers, as GraphML wants."""
    made = _networkx().MultiDiGraph()
    for node in network["nodes"]:
        made.add_node(node["id"], **{name: _flat(value) for name, value in node.items() if name != "id" and value is not None})
    for link in network["links"]:
        attributes = {name: _flat(link[name]) for name in ("kind", "reason", "strength")}
        made.add_edge(link["source"], link["target"], key=link["key"], **attributes)
    return made


def _flat(value: Any) -> Any:
    from engramma.cli.screen import clean

    if isinstance(value, list):
        return clean(", ".join(value))
    return clean(value) if isinstance(value, str) else value
