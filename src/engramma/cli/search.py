"""``engramma search``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from engramma.cli.group import NOTHING_FOUND, complain
from engramma.cli.opening import json_option, opened

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
WhereOption = Annotated[
    str | None, typer.Option("--where", metavar="JSON", help="""Only notes that match, such as '{"tags": {"$in": ["bug"]}}'.""")
]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Only what happened at or after this time.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only what happened at or before this time.")]
AsOf = Annotated[str | None, typer.Option("--as-of", metavar="TIME", help="The memory as it was: a time or a commit's id.")]
Include = Annotated[
    list[str] | None,
    typer.Option("--include", metavar="KIND", help="Also superseded, archived, merged or expired notes. Repeatable."),
]


def search(
    ctx: typer.Context,
    query: Annotated[list[str], typer.Argument(metavar="QUERY...", help="The question, in any language.", show_default=False)],
    k: Annotated[int, typer.Option("-k", metavar="N", help="How many direct hits.")] = 10,
    where: WhereOption = None,
    since: Since = None,
    until: Until = None,
    as_of: AsOf = None,
    include: Include = None,
    expand: Annotated[bool, typer.Option("--expand/--no-expand", help="Whether linked notes follow the hits.")] = True,
    min_relevance: Annotated[
        float | None, typer.Option("--min-relevance", metavar="X", help="The cut-off from 0 to 1; 0 switches it off.")
    ] = None,
    rerank: Annotated[bool, typer.Option("--rerank", help="Have the model order the best candidates: one call.")] = False,
    context: Annotated[
        int | None, typer.Option("--context", metavar="TOKENS", help="Print the block for a prompt, at most this long.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find the notes that bear on a question, each with its evidence."""
    question = " ".join(query)
    with opened(ctx) as memory:
        hits = memory.search(
            question, k=k, where=json_option("where", where), since=since, until=until, as_of=as_of,
            include=include or (), expand=expand, min_relevance=min_relevance, rerank="llm" if rerank else None,
        )  # fmt: skip
    _show(question, hits, context, as_json)
    if not hits:
        raise typer.Exit(NOTHING_FOUND)


def _show(question: str, hits: Any, context: int | None, as_json: bool) -> None:
    from engramma.cli.screen import Screen, print_json

    if as_json:
        from engramma.cli.shapes import hits_json

        print_json(hits_json(question, hits))
    elif not hits:
        complain(hits.declined)
    elif context is not None:
        typer.echo(hits.context(context))
    else:
        from engramma.cli.views import hit_list

        hit_list(Screen(), hits)
