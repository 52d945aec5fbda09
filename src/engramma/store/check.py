"""What can be wrong inside a memory file, looked for by SQL."""

from __future__ import annotations

import sqlite3

_GONE = "NOT EXISTS (SELECT 1 FROM note WHERE id = {} AND state <> 'archived')"
_FOLDED = "(SELECT coalesce(max(json_extract(value, '$.seq')), 0) FROM meta WHERE key = 'horizon')"
_FIRST_KEPT = (  # the number of a note's oldest revision; where the log was folded, any that is as old as that
    f"CASE WHEN coalesce((SELECT min(h.seq) FROM note_history h WHERE h.id = n.id), n.seq) <= {_FOLDED} THEN "
    "coalesce((SELECT min(h.revision) FROM note_history h WHERE h.id = n.id), n.revision) ELSE 1 END"
)
_CHECKS = (
    (f"SELECT source || ' -> ' || target FROM link WHERE {_GONE.format('source')} OR {_GONE.format('target')}",
     "link {} points to a note that is gone"),
    ("SELECT l.source || ' -> ' || l.target FROM link l JOIN note s ON s.id = l.source JOIN note t ON t.id = l.target "
     "WHERE s.space <> t.space OR s.space <> l.space",
     "link {} crosses the wall between two spaces"),
    ("SELECT id FROM note WHERE seq NOT IN (SELECT seq FROM commit_log)",
     "note {} was last changed by a commit that is not in the log"),
    ("SELECT id FROM note_history WHERE seq NOT IN (SELECT seq FROM commit_log)",
     "an earlier revision of note {} was made by a commit that is not in the log"),
    (f"SELECT n.id FROM note n WHERE n.revision - (SELECT count(*) FROM note_history h WHERE h.id = n.id) > {_FIRST_KEPT}",
     "note {} lacks some of its earlier revisions"),
    ("SELECT value FROM meta WHERE key = 'unscoured'",
     "words that were removed for good may still stand in the file or its -wal: open the memory while nobody else reads it"),
    ("SELECT DISTINCT note FROM vector WHERE note NOT IN (SELECT id FROM note)",
     "vectors of note {} outlived it"),
    ("SELECT DISTINCT id FROM note_history WHERE id NOT IN (SELECT id FROM note)",
     "revisions of note {} outlived it"),
    ("SELECT l.seq FROM commit_log l WHERE l.seq < 0 OR l.seq > (SELECT seq FROM sqlite_sequence WHERE name = 'commit_log')",
     "commit {} has a number out of order"),
)  # fmt: skip
_MOST = 20


def problems(db: sqlite3.Connection, model: int) -> list[str]:
    """One sentence for each fault, at most twenty of a kind."""
    found = [str(row[0]) for row in db.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
    for text, sentence in _CHECKS:
        found += [sentence.format(row[0]) for row in db.execute(f"{text} LIMIT {_MOST}")]
    lacking = "SELECT id FROM note n WHERE state = 'ready' AND NOT EXISTS (SELECT 1 FROM vector WHERE note = n.id AND model = ?)"
    found += [f"note {row[0]} has no vector: run 'engramma reindex'" for row in db.execute(f"{lacking} LIMIT {_MOST}", (model,))]
    sizes = [row[0] for row in db.execute("SELECT DISTINCT length(data) FROM vector WHERE model = ?", (model,))]
    if len(sizes) > 1:
        found.append(f"vectors of different sizes ({sorted(sizes)} bytes): run 'engramma reindex'")
    return found
