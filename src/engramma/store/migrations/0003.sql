-- Pages of the log by actor and time are read from the index alone.
DROP INDEX commit_space;
CREATE INDEX commit_space ON commit_log (space, seq, at, actor);
