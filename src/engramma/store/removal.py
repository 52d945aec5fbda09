"""Removing notes for good: their rows, and what other rows quote of them.

What a note says lives on in places that are not its own: in the reasons of commits ("add "I moved …""), in
reasons of links ("home was Lyon, is now Berlin"), in contexts, keywords and dates that evolution or a merge gave to
other notes. Of the commits that touched a removed note every such text is judged: what the note's own commits
wrote elsewhere goes, and so does what quotes it, or uses words of its that the other note never says. What anybody
said in another note's content stays.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from engramma.store.connection import UNSCOURED
from engramma.store.logbook import by_ids
from engramma.store.rows import from_json, to_json
from engramma.words import is_chinese, is_common, sentences, terms

GONE = "(content removed for good)"
_SHORT, _SHORT_HAN, _MOST = 24, 8, 40  # characters of a sentence that make a quotation; sentences looked for
_OWN = (("note", "id"), ("note_history", "id"), ("vector", "note"), ("note_use", "note"), ("lease", "note"))
_TEMPLATE = frozenset(terms("speaks spoke speaking says said tells told asks asked mentions 谈到 说到 提到"))
_LISTS, _NAMED = ("keywords", "tags", "dates"), ("keywords", "dates")


@dataclass(slots=True)
class Removed:
    """The notes that one commit removes, and their words."""

    ids: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)
    keywords: list[str] = field(default_factory=list)
    linked: set[str] = field(default_factory=set)


def remove_rows(db: sqlite3.Connection, note: str, removed: Removed) -> None:
    """Delete all rows of one note, and remember for ``forget_words`` what it said."""
    for table in ("note", "note_history"):
        for content, keywords in db.execute(f"SELECT content, keywords FROM {table} WHERE id = ?", (note,)).fetchall():
            removed.texts.append(content)
            removed.keywords += from_json(keywords)
    removed.ids.add(note)
    for table in ("link", "link_history"):
        ends = db.execute(f"SELECT source, target FROM {table} WHERE source = ? OR target = ?", (note, note)).fetchall()
        removed.linked.update(end for row in ends for end in row)
        db.execute(f"DELETE FROM {table} WHERE source = ? OR target = ?", (note, note))
    for table, column in _OWN:
        db.execute(f"DELETE FROM {table} WHERE {column} = ?", (note,))


def forget_words(db: sqlite3.Connection, seq: int, space: str, removed: Removed) -> None:
    """Take what removed notes said out of the log and out of other notes. ``seq`` is the commit that removed them."""
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, '1')", (UNSCOURED,))
    if db.execute("SELECT 1 FROM note WHERE space = ?", (space,)).fetchone() is None:
        _blank_space(db, seq, space)
        return
    _Forgetting(db, seq, space, removed).run()


def _blank_space(db: sqlite3.Connection, seq: int, space: str) -> None:
    """Nothing is left in the space: its whole log goes silent, tombstones keep what they say."""
    mine = "SELECT seq FROM commit_log WHERE space = ? AND seq < ?"
    db.execute(f"UPDATE change SET body = '{{}}' WHERE kind <> 'RemoveNote' AND seq IN ({mine})", (space, seq))
    tombs = "SELECT seq FROM change WHERE kind = 'RemoveNote'"
    silent = f"UPDATE commit_log SET reason = ?, dropped = '[]' WHERE space = ? AND seq < ? AND seq NOT IN ({tombs})"
    db.execute(silent, (GONE, space, seq))


@dataclass(frozen=True, slots=True)
class Quotes:
    """Tells what quotes some texts: a passage word for word, or words that only they say."""

    passages: tuple[str, ...]
    words: frozenset[str]
    hint: re.Pattern[str]
    """Matches wherever one of the words may stand."""

    @classmethod
    def of(cls, texts: Iterable[str], keywords: Iterable[str]) -> Quotes:
        """Of the contents of notes and their keywords."""
        whole = list(dict.fromkeys(texts))
        passages = {passage for text in whole for passage in _passages(text)}
        words = {term for text in (*whole, *keywords) for term in terms(text)}
        telling = frozenset(word for word in words - _TEMPLATE if not is_common(word))
        return cls(tuple(passages), telling, re.compile("|".join(sorted(re.escape(_root(word)) for word in telling)) or r"(?!)"))

    def in_words(self, text: str) -> bool:
        """Whether a passage stands in a text word for word."""
        line = _plain(text)
        return any(passage in line for passage in self.passages)

    def told(self, text: str, own: frozenset[str]) -> bool:
        """Whether a text quotes them, or says a word of theirs that is not among somebody's own."""
        return self.in_words(text) or not self.words.isdisjoint(set(terms(text)) - own)


def _root(stem: str) -> str:
    """What every form of a stemmed word begins with: "happi" of "happy"."""
    return stem[:-1] if len(stem) > 3 and stem.isascii() else stem


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _passages(text: str) -> Iterable[str]:
    """The beginnings of a text's sentences, each long enough to be a quotation; a short text is one by itself."""
    for part in [text, *sentences(text)[:_MOST]]:
        line = _plain(part)
        least = _SHORT_HAN if is_chinese(line) else _SHORT
        if len(line) >= least:
            yield line[:least]
        elif part is text:
            yield line if len(line) > 3 else f'"{line}"'  # as reasons quote it


@dataclass(slots=True)
class _Other:
    """A note that stays, and what may be kept of its descriptions."""

    own: frozenset[str]
    given: frozenset[str]
    lines: set[str] = field(default_factory=set)
    items: set[str] = field(default_factory=set)


class _Forgetting:
    """One pass over the log and the other notes of a space."""

    def __init__(self, db: sqlite3.Connection, seq: int, space: str, removed: Removed) -> None:
        self.db, self.seq, self.space, self.ids, self.linked = db, seq, space, removed.ids, removed.linked - removed.ids
        self.quotes = Quotes.of(removed.texts, removed.keywords)
        self.others: dict[str, _Other] = {}
        self.links: set[tuple[str, str]] = set()
        self.unsaid: dict[str, bool] = {}

    def run(self) -> None:
        touching = self._touching()
        rows = by_ids(self.db, "SELECT * FROM change WHERE seq IN ({}) ORDER BY seq, ord", touching)
        by_seq: dict[int, list[sqlite3.Row]] = {}
        for row in rows:
            by_seq.setdefault(row["seq"], []).append(row)
        self._know(self.linked | {row["note"] for row in rows} | {row["other"] for row in rows if row["other"]})
        for seq, changes in by_seq.items():
            self._commit(seq, changes)
        self._note_linked()
        self._note_handed_on()
        for note, other in self.others.items():
            self._describe_less(note, other)
        self._note_links()
        self._relink()
        self._sweep()

    def _touching(self) -> list[int]:
        """The earlier commits that touched a removed note, and this one, which may have passed on a link."""
        found: set[int] = {self.seq}
        for column in ("note", "other"):
            found |= {row[0] for row in by_ids(self.db, f"SELECT seq FROM change WHERE {column} IN ({{}})", list(self.ids))}
        return sorted(found)

    def _know(self, notes: Iterable[str]) -> None:
        """The words that each other note says itself, in any of its revisions."""
        wanted = [note for note in notes if note not in self.ids]
        said: dict[str, list[str]] = {}
        given: dict[str, set[str]] = {}
        for table in ("note", "note_history"):
            for row in by_ids(self.db, f"SELECT id, content, speaker, category, given FROM {table} WHERE id IN ({{}})", wanted):
                said.setdefault(row["id"], []).extend(filter(None, (row["content"], row["speaker"], row["category"])))
                theirs = from_json(row["given"])
                given.setdefault(row["id"], set()).update(_key(item) for name in _LISTS for item in theirs.get(name) or ())
        for note, texts in said.items():
            own = frozenset(term for text in (*texts, *given[note]) for term in terms(text))
            self.others[note] = _Other(own, frozenset(given[note]))

    def _commit(self, seq: int, changes: Sequence[sqlite3.Row]) -> None:
        """Silence one commit that touched a removed note."""
        theirs = seq != self.seq and not self.ids.isdisjoint((changes[0]["note"], changes[0]["other"]))
        bodies = {row["ord"]: from_json(row["body"]) for row in changes}
        for row in changes:
            if self.ids.isdisjoint((row["note"], row["other"])):
                self._note_what(row, bodies[row["ord"]], theirs)
            elif row["kind"] != "RemoveNote":
                self.db.execute("UPDATE change SET body = '{}' WHERE seq = ? AND ord = ?", (seq, row["ord"]))
        if seq == self.seq:
            return
        own = frozenset().union(*(self.others[row["note"]].own for row in changes if row["note"] in self.others))
        reason, dropped = self.db.execute("SELECT reason, dropped FROM commit_log WHERE seq = ?", (seq,)).fetchone()
        if theirs or self.quotes.told(f"{reason} {dropped}", own):
            self.db.execute("UPDATE commit_log SET reason = ?, dropped = '[]' WHERE seq = ?", (GONE, seq))

    def _note_what(self, row: sqlite3.Row, body: dict[str, Any], theirs: bool) -> None:
        """What a change to another note wrote there, so that it can be taken out wherever it stands."""
        ends = [end for end in (row["note"], row["other"]) if end in self.others]
        own = frozenset().union(*(self.others[end].own for end in ends))
        if body.get("reason") and (theirs or self.quotes.told(body["reason"], own)):
            self._put_body(row["seq"], row["ord"], body | {"reason": GONE})
        if row["kind"] in ("PutLink", "DropLink"):
            self.links.add((row["note"], row["other"]))
        elif ends:
            self._note_described(row, body, theirs, self.others[ends[0]])

    def _put_body(self, seq: int, ord_: int, body: Mapping[str, Any]) -> None:
        self.db.execute("UPDATE change SET body = ? WHERE seq = ? AND ord = ?", (to_json(body), seq, ord_))

    def _note_described(self, row: sqlite3.Row, body: Mapping[str, Any], theirs: bool, other: _Other) -> None:
        after, before = body.get("after") or {}, body.get("before") or {}
        if row["kind"] == "PutNote":
            after = next((fields for number, fields in self._described(row["note"]) if number == 1), {})
        other.lines |= {line for line in _lines(after) - _lines(before) if theirs or self.quotes.told(line, other.own)}
        read = row["kind"] == "PutNote" or not {"state", "content"}.isdisjoint(after)
        names = _NAMED if read and not theirs else _LISTS  # a tag that its own reading gave is a topic, not a quotation
        added = _items(after, names) - _items(before, names) - other.given
        other.items |= {item for item in added if self.quotes.told(item, other.own)}

    def _note_linked(self) -> None:
        """Quotations in notes that were linked; where the log was folded, nothing else tells what came from where."""
        folded = self.db.execute("SELECT 1 FROM meta WHERE key = 'horizon'").fetchone() is not None
        for note in self.linked & self.others.keys():
            other = self.others[note]
            for _, fields in self._described(note):
                other.lines |= {line for line in _lines(fields) if self.quotes.in_words(line)}
                if folded:
                    other.lines |= {line for line in _lines(fields) if self.quotes.told(line, other.own)}
                    items = _items(fields, _NAMED) - other.given
                    other.items |= {item for item in items if self.quotes.told(item, other.own)}

    def _note_handed_on(self) -> None:
        """What other notes had of it and handed on, as a merge does, in commits that never touched it; and what a model
        wrote that was shown it: descriptions with words that nobody else in the space says."""
        known = frozenset().union(*(other.items for other in self.others.values()))
        items: dict[str, set[str]] = {}
        lines: dict[str, set[str]] = {}
        for table in ("note", "note_history"):
            for row in self.db.execute(f"SELECT id, context, keywords, tags, dates FROM {table} WHERE space = ?", (self.space,)):
                fields = _fields(row)
                if found := {item for item in _items(fields, _LISTS) if item in known or self._only_here(item)}:
                    items.setdefault(row["id"], set()).update(found)
                if found := {line for line in _lines(fields) if self._only_here(line)}:
                    lines.setdefault(row["id"], set()).update(found)
        self._know((items.keys() | lines.keys()) - self.others.keys())
        for note in items.keys() | lines.keys():
            other = self.others[note]
            other.items |= {item for item in items.get(note, set()) - other.given if self.quotes.told(item, other.own)}
            other.lines |= {line for line in lines.get(note, ()) if self.quotes.told(line, other.own)}

    def _only_here(self, text: str) -> bool:
        """Whether a text holds a word that the removed notes say and no other content of the space does."""
        if self.quotes.hint.search(text.casefold()) is None:
            return False
        return any(self._unsaid(word) for word in self.quotes.words.intersection(terms(text)))

    def _unsaid(self, word: str) -> bool:
        if word not in self.unsaid:
            said = "SELECT 1 FROM note WHERE space = ? AND instr(lower(content), ?) LIMIT 1"
            self.unsaid[word] = self.db.execute(said, (self.space, _root(word))).fetchone() is None
        return self.unsaid[word]

    def _described(self, note: str) -> list[tuple[int, dict[str, Any]]]:
        """The descriptions of a note in each of its revisions."""
        text = "SELECT revision, context, keywords, tags, dates FROM {} WHERE id = ?"
        rows = [row for table in ("note", "note_history") for row in self.db.execute(text.format(table), (note,))]
        return [(row["revision"], _fields(row)) for row in rows]

    def _describe_less(self, note: str, other: _Other) -> None:
        """Take lines and items out of another note, in every revision and wherever the log repeats them."""
        if not other.lines and not other.items:
            return
        for table in ("note", "note_history"):
            for row in self.db.execute(f"SELECT * FROM {table} WHERE id = ?", (note,)).fetchall():
                if (kept := _without(_fields(row), other)) != _fields(row):
                    values = _columns(kept) | {"id": note, "revision": row["revision"]}
                    names = ", ".join(f"{name} = :{name}" for name in _columns(kept))
                    self.db.execute(f"UPDATE {table} SET {names} WHERE id = :id AND revision = :revision", values)
        text = "SELECT seq, ord, body FROM change WHERE note = ? AND kind IN ('ReviseNote', 'ArchiveNote')"
        for seq, ord_, body in self.db.execute(text, (note,)).fetchall():
            value = from_json(body)
            kept = {**value, **{side: _without(value[side], other) for side in ("after", "before") if side in value}}
            if kept != value:
                self._put_body(seq, ord_, kept)

    def _note_links(self) -> None:
        """Links between other notes whose reasons tell of it, handed on in commits that never touched it."""
        for table in ("link", "link_history"):
            rows = self.db.execute(f"SELECT source, target, reason FROM {table} WHERE space = ?", (self.space,)).fetchall()
            told = [row for row in rows if self.quotes.in_words(row["reason"]) or self._only_here(row["reason"])]
            self.links |= {(row["source"], row["target"]) for row in told}
        self._know({end for ends in self.links for end in ends} - self.others.keys())

    def _relink(self) -> None:
        """Silence the reasons of links between other notes that tell of a removed one, now and in the log."""
        for source, target in self.links:
            own = frozenset().union(*(self.others[end].own for end in (source, target) if end in self.others))
            for table in ("link", "link_history"):
                text = f"SELECT DISTINCT reason FROM {table} WHERE source = ? AND target = ?"
                for (reason,) in self.db.execute(text, (source, target)).fetchall():
                    if self.quotes.told(reason, own):
                        changed = f"UPDATE {table} SET reason = ? WHERE source = ? AND target = ? AND reason = ?"
                        self.db.execute(changed, (GONE, source, target, reason))
            text = "SELECT seq, ord, body FROM change WHERE note = ? AND other = ?"
            for seq, ord_, body in self.db.execute(text, (source, target)).fetchall():
                value = from_json(body)
                kept = self._silent(value, own)
                if kept != value:
                    self._put_body(seq, ord_, kept)

    def _silent(self, body: Mapping[str, Any], own: frozenset[str]) -> dict[str, Any]:
        """A change whose reasons, its links' included, tell nothing."""
        kept = dict(body)
        for name in ("link", "before"):
            if isinstance(kept.get(name), dict):
                kept[name] = self._silent(kept[name], own)
        if "reason" in kept and self.quotes.told(kept["reason"], own):
            kept["reason"] = GONE
        return kept

    def _sweep(self) -> None:
        """Look for passages word for word in every reason of the space: a revert, say, quotes what it undid."""
        rows = self.db.execute("SELECT seq, reason, dropped FROM commit_log WHERE space = ? AND seq < ?", (self.space, self.seq))
        for seq, reason, dropped in rows.fetchall():
            if self.quotes.in_words(reason) or self.quotes.in_words(dropped):
                self.db.execute("UPDATE commit_log SET reason = ?, dropped = '[]' WHERE seq = ?", (GONE, seq))
        for table in ("link", "link_history"):
            for (reason,) in self.db.execute(f"SELECT DISTINCT reason FROM {table} WHERE space = ?", (self.space,)).fetchall():
                if self.quotes.in_words(reason):
                    self.db.execute(f"UPDATE {table} SET reason = ? WHERE space = ? AND reason = ?", (GONE, self.space, reason))


def _fields(row: sqlite3.Row) -> dict[str, Any]:
    """What describes a note, of its row."""
    return {"context": row["context"], **{name: from_json(row[name]) for name in _LISTS}}


def _columns(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of ``_fields``."""
    days = [date.fromisoformat(day).toordinal() for _, *span in fields["dates"] for day in span]
    kept = {name: value if name == "context" else to_json(value) for name, value in fields.items()}
    return kept | {"first_day": min(days, default=None), "last_day": max(days, default=None)}


def _lines(fields: Mapping[str, Any]) -> set[str]:
    return set(filter(None, fields.get("context", "").split("\n")))


def _key(item: Any) -> str:
    """The text of a keyword, a tag or a date."""
    return (item if isinstance(item, str) else str(item[0])).casefold()


def _items(fields: Mapping[str, Any], names: Sequence[str]) -> set[str]:
    return {_key(item) for name in names for item in fields.get(name) or ()}


def _without(fields: Mapping[str, Any], other: _Other) -> dict[str, Any]:
    kept = dict(fields)
    if "context" in kept:
        kept["context"] = "\n".join(line for line in kept["context"].split("\n") if line not in other.lines)
    for name in _LISTS:
        if name in kept:
            kept[name] = [item for item in kept[name] if _key(item) not in other.items]
    return kept
