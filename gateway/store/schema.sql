-- Version 1 of the store. Tag ids are never reused; a block holds some seconds of one group.
CREATE TABLE IF NOT EXISTS tags (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS blocks (
  id INTEGER PRIMARY KEY,
  group_name TEXT NOT NULL,
  first_ns INTEGER NOT NULL,
  last_ns INTEGER NOT NULL,
  stored_wall_ns INTEGER NOT NULL,
  samples INTEGER NOT NULL,
  data BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS blocks_by_group ON blocks (group_name, id);
CREATE TABLE IF NOT EXISTS predictions (
  id INTEGER PRIMARY KEY,
  model TEXT NOT NULL,
  asset TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  end_ns INTEGER NOT NULL,
  made_wall_ns INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  quality INTEGER NOT NULL,
  backend TEXT NOT NULL,
  digest TEXT NOT NULL,
  trace TEXT NOT NULL,
  outputs BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS predictions_by_asset ON predictions (model, asset, id);
CREATE TABLE IF NOT EXISTS journal (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, wall_ns INTEGER NOT NULL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS journal_by_time ON journal (wall_ns);
CREATE TABLE IF NOT EXISTS outbox (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  sink TEXT NOT NULL,
  topic TEXT NOT NULL,
  payload BLOB NOT NULL,
  retain INTEGER NOT NULL,
  stored_wall_ns INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS outbox_by_sink ON outbox (sink, id);
