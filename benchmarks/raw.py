"""What we are compared with: the bare disk, and Python's own sqlite3 as a queue."""

import os
import sqlite3
import threading
from pathlib import Path

BLOCK = 1 << 20


class RawFile:
    """A file written with zeros beforehand; each force writes the next bytes of it and syncs them."""

    def __init__(self, path: Path, size: int) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self.size = size
        self.at = 0
        for offset in range(0, size, BLOCK):
            os.pwrite(self.fd, bytes(BLOCK), offset)
        os.fsync(self.fd)

    def force(self, data: bytes) -> None:
        if self.at + len(data) > self.size:
            self.at = 0
        os.pwrite(self.fd, data, self.at)
        os.fdatasync(self.fd)
        self.at += len(data)


class SharedRawFile(RawFile):
    """The same for many threads: a force that waits for the lock may find that its bytes have been synced meanwhile."""

    def __init__(self, path: Path, size: int) -> None:
        super().__init__(path, size)
        self.writing = threading.Lock()
        self.syncing = threading.Lock()
        self.written = self.synced = 0  # forces

    def force(self, data: bytes) -> None:
        with self.writing:
            if self.at + len(data) > self.size:
                self.at = 0
            os.pwrite(self.fd, data, self.at)
            self.at += len(data)
            self.written += 1
            mine = self.written
        with self.syncing:
            if self.synced < mine:
                written = self.written
                os.fdatasync(self.fd)
                self.synced = written


class SqliteQueue:
    """A queue as people write it on sqlite3: one table, and an index in the order that messages are got."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, timeout=60, isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS message"
            " (id INTEGER PRIMARY KEY, queue TEXT NOT NULL, priority INTEGER NOT NULL, body BLOB NOT NULL)"
        )
        self.db.execute("CREATE INDEX IF NOT EXISTS message_order ON message (queue, priority DESC, id)")

    def put(self, queue: str, bodies: list[bytes]) -> None:
        """Put all in one transaction."""
        self.db.execute("BEGIN IMMEDIATE")
        self.db.executemany(
            "INSERT INTO message (queue, priority, body) VALUES (?, 0, ?)", [(queue, body) for body in bodies]
        )
        self.db.execute("COMMIT")

    def get(self, queue: str, limit: int) -> list[bytes]:
        """Get the first `limit` in one transaction."""
        self.db.execute("BEGIN IMMEDIATE")
        rows = self.db.execute(
            "DELETE FROM message WHERE id IN"
            " (SELECT id FROM message WHERE queue = ? ORDER BY priority DESC, id LIMIT ?) RETURNING body",
            (queue, limit),
        ).fetchall()
        self.db.execute("COMMIT")
        return [body for (body,) in rows]
