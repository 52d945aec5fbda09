-- Who reads a pending note, and until when nobody else shall; without a worker, when it is tried again.
CREATE TABLE lease (
    note TEXT PRIMARY KEY,
    worker TEXT NOT NULL,
    until INTEGER NOT NULL,
    tries INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX note_waiting ON note (space, num) WHERE state = 'pending';
