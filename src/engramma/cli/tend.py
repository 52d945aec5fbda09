"""``engramma tend``: all upkeep, with a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from engramma.cli.group import MODEL_FAILED
from engramma.cli.opening import opened
from engramma.cli.search import Json

if TYPE_CHECKING:
    from engramma.cli.screen import Screen
    from engramma.report import Step, Tended

_SHOWN = 10  # proposals of a part that are listed
_NOTHING = {
    "read": "nothing waits", "conflicts": "nothing is at odds", "merge": "nothing says the same", "forget": "nothing has faded",
    "reflect": "nothing new to say",
}  # fmt: skip


def tend(
    ctx: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this part: read, conflicts, merge, forget or reflect; repeatable.")
    ] = None,
    max_calls: Annotated[int | None, typer.Option("--max-calls", metavar="N", help="At most so many calls of the model.")] = None,
    max_seconds: Annotated[
        float | None, typer.Option("--max-seconds", metavar="S", help="Begin nothing more after so many seconds.")
    ] = None,
    purge_after: Annotated[
        str | None, typer.Option("--purge-after", metavar="365d", help="Remove for good what was forgotten so long ago.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Do all upkeep: read what waits, settle conflicts, merge, forget, reflect."""
    from engramma.cli.screen import Screen, print_json

    screen = Screen()

    def show(step: Step) -> None:
        if not as_json:
            _show_step(screen, step)

    with opened(ctx) as memory:
        done = memory.tend(
            dry_run=dry_run,
            only=only or None,
            max_calls=max_calls,
            max_seconds=max_seconds,
            purge_after=purge_after,
            progress=show,
        )
    if as_json:
        print_json(tended_json(done))
    else:
        _show_sum(screen, done)
    if done.failed:
        raise typer.Exit(MODEL_FAILED)


def _show_step(screen: Screen, step: Step) -> None:
    """A part: its sum, what it is about, the commits, and what is left."""
    from engramma.upkeep.run import counted

    what = counted(step.read, "note") + " read" if step.part == "read" and step.read else step.summary
    if not what and step.left:
        screen.field(step.part, (step.left, "yellow"), indent=0)
        return
    screen.field(step.part, (what or _NOTHING[step.part], "bold" if what else "dim"), indent=0)
    for proposal in step.proposals[:_SHOWN]:
        _show_proposal(screen, proposal)
    if len(step.proposals) > _SHOWN:
        screen.line((f"… and {len(step.proposals) - _SHOWN} more (--json has them all)", "dim"), indent=11)
    for commit in step.commits:
        lasting = any(type(change).__name__ == "RemoveNote" for change in commit.changes)
        back = "this cannot be reverted" if lasting else f"engramma revert {commit.id} undoes it"
        screen.line((f"{commit.actor}  {back}", "dim"), indent=11)
    if step.left:
        screen.line(("left  ", "yellow"), step.left, indent=11)


def _show_proposal(screen: Screen, proposal: Any) -> None:
    from engramma.cli.views import title

    shape = proposal_json(proposal)
    texts = [f"“{title(note)}”" for note in proposal_notes(proposal)]
    if "content" in shape:
        head, text = shape["kind"], f"“{shape['content']}”"
    elif shape["kind"] == "merge":
        head, text = "merge", f"{', '.join(texts[1:])} → {texts[0]}"
    else:
        head, text = shape["kind"], " → ".join(texts)
    screen.line((f"{head}  ", "magenta"), text, (f"  {shape['reason']}", "dim"), indent=11, hang=2)


def _show_sum(screen: Screen, done: Tended) -> None:
    from engramma.upkeep.run import counted

    cost = f"{counted(done.calls, 'call')}, {done.tokens} tokens, " if done.calls else "no model was asked, "
    doing = "a dry run: nothing was changed" if done.dry_run else counted(len(done.commits), "commit")
    screen.field("in all", f"{doing}; {cost}{done.seconds:.1f} s", indent=0)


# -- JSON


def tended_json(done: Tended) -> dict[str, Any]:
    """What was done, step by step."""
    steps = [
        {
            "part": step.part, "summary": step.summary, "proposals": [proposal_json(one) for one in step.proposals],
            "commits": [commit.id for commit in step.commits], "read": step.read, "calls": step.calls,
            "tokens_in": step.tokens_in, "tokens_out": step.tokens_out, "seconds": step.seconds, "left": step.left,
        }
        for step in done.steps
    ]  # fmt: skip
    return {"dry_run": done.dry_run, "steps": steps, "calls": done.calls, "tokens": done.tokens, "seconds": done.seconds}


def proposal_notes(proposal: Any) -> tuple[Any, ...]:
    """The notes that a proposal is about: the one that stays first, or the sources of an insight."""
    found = getattr(proposal, "notes", None)
    return tuple(found if found is not None else getattr(proposal, "sources", None) or (proposal.note,))


def proposal_json(proposal: Any) -> dict[str, Any]:
    """A proposal of any part: what is to be done, with which notes, and why."""
    kind = getattr(proposal, "action", None) or getattr(proposal, "kind", "merge")
    shape: dict[str, Any] = {"kind": kind, "reason": proposal.reason}
    if hasattr(proposal, "content"):
        sources = [note.id for note in proposal.sources]
        return shape | {"notes": sources, "insight": proposal.id, "content": proposal.content, "subject": proposal.subject,
                        "judge": proposal.judge}  # fmt: skip
    shape["notes"] = [note.id for note in proposal_notes(proposal)]
    more = {name: getattr(proposal, name) for name in ("retention", "likeness", "judge") if hasattr(proposal, name)}
    evidence = getattr(proposal, "evidence", ())
    return shape | more | ({"evidence": evidence} if evidence else {})
