CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE commit_log (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    space TEXT NOT NULL,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    calls INTEGER NOT NULL,
    tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL,
    dropped TEXT NOT NULL,
    reverts TEXT
) STRICT;
CREATE INDEX commit_space ON commit_log (space, seq);

CREATE TABLE change (
    seq INTEGER NOT NULL REFERENCES commit_log (seq),
    ord INTEGER NOT NULL,
    kind TEXT NOT NULL,
    note TEXT NOT NULL,
    other TEXT,
    body TEXT NOT NULL,
    PRIMARY KEY (seq, ord)
) STRICT, WITHOUT ROWID;
CREATE INDEX change_note ON change (note, seq);
CREATE INDEX change_other ON change (other, seq) WHERE other IS NOT NULL;

CREATE TABLE note (
    num INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    space TEXT NOT NULL,
    key TEXT,
    session TEXT,
    speaker TEXT,
    content TEXT NOT NULL,
    at INTEGER NOT NULL,
    at_offset INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    context TEXT NOT NULL,
    keywords TEXT NOT NULL,
    tags TEXT NOT NULL,
    dates TEXT NOT NULL,
    first_day INTEGER,
    last_day INTEGER,
    category TEXT,
    importance INTEGER NOT NULL,
    level TEXT NOT NULL,
    state TEXT NOT NULL,
    pinned INTEGER NOT NULL,
    valid_until INTEGER,
    expires_at INTEGER,
    metadata TEXT NOT NULL,
    given TEXT NOT NULL,
    error TEXT,
    revision INTEGER NOT NULL,
    seq INTEGER NOT NULL
) STRICT;
CREATE INDEX note_space ON note (space, state, num);
CREATE INDEX note_session ON note (space, session, num) WHERE session IS NOT NULL;
CREATE INDEX note_pending ON note (num) WHERE state = 'pending';
CREATE UNIQUE INDEX note_key ON note (space, key) WHERE key IS NOT NULL AND state <> 'archived';

-- A note as it was before a later commit ("until") revised it.
CREATE TABLE note_history (
    num INTEGER NOT NULL,
    id TEXT NOT NULL,
    space TEXT NOT NULL,
    key TEXT,
    session TEXT,
    speaker TEXT,
    content TEXT NOT NULL,
    at INTEGER NOT NULL,
    at_offset INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    context TEXT NOT NULL,
    keywords TEXT NOT NULL,
    tags TEXT NOT NULL,
    dates TEXT NOT NULL,
    first_day INTEGER,
    last_day INTEGER,
    category TEXT,
    importance INTEGER NOT NULL,
    level TEXT NOT NULL,
    state TEXT NOT NULL,
    pinned INTEGER NOT NULL,
    valid_until INTEGER,
    expires_at INTEGER,
    metadata TEXT NOT NULL,
    given TEXT NOT NULL,
    error TEXT,
    revision INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (id, revision)
) STRICT, WITHOUT ROWID;
CREATE INDEX history_space ON note_history (space, until);

CREATE TABLE link (
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    kind TEXT NOT NULL,
    space TEXT NOT NULL,
    reason TEXT NOT NULL,
    strength REAL NOT NULL,
    revision INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (source, target, kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX link_target ON link (target);

-- A link as it was before a later commit changed or dropped it.
CREATE TABLE link_history (
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    kind TEXT NOT NULL,
    space TEXT NOT NULL,
    reason TEXT NOT NULL,
    strength REAL NOT NULL,
    revision INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (source, target, kind, revision)
) STRICT, WITHOUT ROWID;
CREATE INDEX link_history_target ON link_history (target);

-- One row a piece of content: float32, little endian. "revision" is the note's revision that has
-- held this content since; "model" counts the store's embedders.
CREATE TABLE vector (
    note TEXT NOT NULL,
    revision INTEGER NOT NULL,
    model INTEGER NOT NULL,
    part INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX vector_note ON vector (note, model, revision, part);

CREATE TABLE note_use (
    note TEXT PRIMARY KEY,
    uses INTEGER NOT NULL,
    used_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
