"""Connection: a queue manager that a daemon runs, with the methods and errors of `QueueManager`.

A connection that was lost is made again by the next call; what was in flight has failed by then, never in silence.
"""

import contextlib
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar, Unpack

from logger.archive import Outcome
from logger.posix_disk import Path
from logger.progress import Progress, no_progress
from qmgr import link as links
from qmgr import sockets, targets, values, wire
from qmgr.consume import Consumer
from qmgr.errors import Mistake, MQError, Reason, Unavailable, quoted
from qmgr.infos import ConnectionInfo, QueueInfo, Status, TransactionInfo
from qmgr.link import Broken, Link, Target
from qmgr.message import Message, check_bodies, check_body
from qmgr.mqsc import MqscResult
from qmgr.objects import (
    AliasAttributes,
    AliasDefinition,
    ChangedAlias,
    QmgrAttributes,
    QmgrDefinition,
    QueueAttributes,
    check_progress,
    several,
)
from qmgr.remote import RemoteUnit, wire_wait
from qmgr.replay import Replayed, Where
from qmgr.threads import this_thread
from qmgr.verbs import (
    GetOptions,
    PutOptions,
    check_end_mode,
    check_limit,
    check_resolution,
    check_selectors,
    not_its_own,
)
from recovery.records import Xid
from recovery.uows import UowState

T = TypeVar("T")

FIRST_PAGE, MAX_PAGE = 4, 128  # messages
MAX_UNKNOWN_UNITS = 1000  # units of work whose outcome is not known, to be asked for

_connections: "weakref.WeakSet[Connection]" = weakref.WeakSet()


def _in_child() -> None:
    for connection in list(_connections):
        connection._forked()


sockets.in_child(_in_child)


def connect(
    name_or_url: str,
    *,
    data_path: Path | None = None,
    user: str = "",
    password: str = "",
    ca: str = "",
    certificate: str = "",
    key: str = "",
    application: str = "",
    timeout: float | None = links.DEFAULT_TIMEOUT_S,
) -> "Connection":
    """Connect to a queue manager that a daemon runs (strmqm).

    By its name, on this machine, or by a URL: `qmgr://host:port/QM1`, over TLS `qmgrs://host:port/QM1`. A URL goes
    with a `user` and `password`, or a client's `certificate` and its `key`; `ca` has the authorities to believe. These
    three are paths of PEM files. `application`: what operators see. `timeout`: seconds without a word from the daemon
    after which a call raises Unavailable (2009), None: for ever; calls that wait, those of many messages and those of
    operators may take longer, as the daemon tells meanwhile that it is at work. Raises Unavailable (2059),
    NotAuthorized (2035).
    """
    target = targets.find(name_or_url, data_path, targets.Identity(user, password, ca, certificate, key))
    return Connection(target, targets.application_name(application), links.check_timeout(timeout))


class Connection:
    """Thread-safe. Leaving a `with` block closes the connection; the queue manager goes on."""

    def __init__(self, target: Target, application: str, timeout: float | None = links.DEFAULT_TIMEOUT_S) -> None:
        """Connect. Use `qmgr.connect`."""
        self.name = target.name
        self._target = target
        self._application = application
        self._connecting = threading.Lock()
        self._unknown_units: OrderedDict[int, int] = OrderedDict()  # id -> LSN before which it logged nothing, or 0
        self._closed = False
        self._link = Link(target, application, timeout)
        _connections.add(self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "lost" if self._link.broken else "connected"
        return f"<Connection to {self.name!r}, {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} can't be copied, or sent to another process: have that connect (qmgr.connect) itself"
        )

    # ---- the connection

    def _connected(self) -> Link:
        """The link; a new one where it was lost. Raises Unavailable: 2018, closed; 2009, lost just now; 2059."""
        link = self._link
        if link.broken or self._closed:
            return self._reconnect()
        link.check(self.name)
        return link

    def _reconnect(self) -> Link:
        with self._connecting:
            if self._link.broken and not self._closed:
                replaces = "" if self._link.forked else self._link.token
                self._link = Link(self._target, self._application, self._link.timeout, replaces)
            if not self._closed:
                return self._link
            self._link.leave()  # it was closed while this one was made, perhaps
        raise links.closed(self.name)

    def note_unknown(self, unit_id: int, since: int) -> None:
        """The answer to its commit was lost: `outcome` reads the log from `since` on."""
        self._unknown_units[unit_id] = since
        while len(self._unknown_units) > MAX_UNKNOWN_UNITS:
            self._unknown_units.popitem(last=False)

    def _forked(self) -> None:
        """This is a child process: it opens a session of its own when it needs one."""
        self._connecting = threading.Lock()
        self._link.abandon()

    def close(self) -> None:
        """Let go of the queue manager; units of work that have not ended are backed out when this returns."""
        self._closed = True
        self._link.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _exchange(self, frame: bytes, *, waits: bool = False) -> bytes:
        try:
            return self._connected().exchange(frame, waits=waits)
        except Broken as exc:
            raise links.lost(self.name, exc) from exc

    def _stream(
        self,
        frame: bytes,
        link: Link | None = None,
        hear: Callable[[int, int], None] | None = None,
        *,
        waits: bool = True,
    ) -> list[tuple[bytes, wire.Reply]]:
        if link is None:
            link = self._connected()
        elif self._closed:
            raise links.closed(self.name)
        try:
            for _ in link.unclosed_cursors[:]:
                with contextlib.suppress(IndexError):  # another thread has taken it
                    link.close_cursor(link.unclosed_cursors.pop())
            return list(links.decode_all(link.stream(frame, hear, waits=waits)))
        except Broken as exc:
            raise links.lost(self.name, exc) from exc

    def _call(self, method: str, *args: Any, progress: Progress = no_progress, **options: Any) -> T:  # type: ignore[type-var]
        """Call a method of the queue manager by its name; returns its result, whose type the caller knows."""
        check_progress(progress)
        watched = progress is not no_progress
        [(answer, head)] = self._stream(wire.call(method, args, options, progress=watched), hear=progress)
        found: T = values.loads(answer[head.at :])
        return found

    # ---- messages

    def put(self, queue: str, body: bytes, **options: Unpack[PutOptions]) -> Message:
        """Put a message outside a unit of work; a persistent one is durable when this returns.

        See `QueueManager.put`.
        """
        if type(body) is not bytes:
            body = check_body(body)
        answer = self._exchange(wire.put(0, 0, queue, body, options))
        if answer[4:8] == wire.OK_ALONE:
            return Message(body, answer[8:], queue)
        return wire.put_message(answer, wire.decode_or_raise(answer), queue, body)

    def put_many(self, queue: str, bodies: Iterable[bytes], **options: Unpack[PutOptions]) -> list[Message]:
        """Put a message for each body in one unit of work of its own, all with the same options."""
        checked = check_bodies(bodies)
        return wire.put_messages(
            self._stream(wire.put_many(0, 0, queue, checked, options), waits=False), queue, checked
        )

    def get(self, queue: str, *, wait: float | None = 0.0, **options: Unpack[GetOptions]) -> Message:
        """Take a message for good: highest priority first, then the order of commit; see `QueueManager.get`."""
        seconds = wire_wait(wait)
        answer = self._exchange(wire.get(0, 0, queue, seconds, options), waits=seconds != 0.0)
        return wire.got_message(answer, wire.decode_or_raise(answer), queue)

    def get_many(
        self, queue: str, limit: int, *, wait: float | None = 0.0, **options: Unpack[GetOptions]
    ) -> list[Message]:
        """Take up to `limit` messages for good, wholly or not at all; [] when there is none within `wait` seconds."""
        seconds = wire_wait(wait)
        frame = wire.get_many(0, 0, queue, check_limit(limit), seconds, options)
        return wire.got_messages(self._stream(frame, waits=seconds != 0.0), queue)

    def consume(self, queue: str, *, wait: float | None = None, backout_requeue: bool = True) -> Consumer[RemoteUnit]:
        """Messages of the queue as they come, each with the unit of work that it was got in.

        See `QueueManager.consume`.
        """
        return Consumer(self.begin, queue, wait, requeue=backout_requeue)

    def dead_letter(
        self, unit: RemoteUnit | None, message: Message, reason: int = Reason.BACKOUT_THRESHOLD_REACHED
    ) -> Message:
        """Put a message that can't be worked on to the dead-letter queue (DEADQ); see `QueueManager.dead_letter`."""
        if unit is not None:
            if not isinstance(unit, RemoteUnit) or unit._connection is not self:
                raise not_its_own(unit, self.name)
            return unit.dead_letter(message, reason)
        return self._call("dead_letter", message, reason)

    def browse(
        self,
        queue: str,
        *,
        message_id: bytes | None = None,
        correlation_id: bytes | None = None,
        group_id: bytes | None = None,
    ) -> Iterator[Message]:
        """Look at the messages that could be got, in that order, taking nothing away.

        They come in pages: the more that are read, the more are looked at together.
        """
        cursor = _Cursor(self._connected())
        frame = wire.browse(queue, FIRST_PAGE, check_selectors(message_id, correlation_id, group_id))
        return self._browsed(cursor, queue, cursor.read(queue, self._stream(frame, cursor.link)))

    def _browsed(self, cursor: "_Cursor", queue: str, messages: list[Message]) -> Iterator[Message]:
        most = FIRST_PAGE
        while True:
            for message in messages:
                if self._closed:
                    raise links.closed(self.name)
                yield message
            if not cursor.number:
                return
            most = min(2 * most, MAX_PAGE)
            messages = cursor.read(queue, self._stream(wire.next_page(cursor.number, most), cursor.link))

    def replay(self, queue: str | int, start: Where, end: Where | None = None) -> "RemoteReplay":
        """What was put to a queue since a bookmark; see `QueueManager.replay`."""
        return RemoteReplay(self, self._connected(), queue, start, end)

    # ---- units of work

    def begin(self, xid: Xid | None = None) -> RemoteUnit:
        """Begin a unit of work; with an `xid` it can be prepared, for two-phase commit."""
        if xid is not None and not isinstance(xid, Xid):
            raise Mistake(f"xid is an Xid, not {quoted(xid)}")
        unit = RemoteUnit(self, self._connected(), xid)
        if xid is not None:
            try:
                unit.begin(xid)
            except MQError:
                raise
            except BaseException:  # an interrupt: it may have begun, and nobody has it
                unit._leave()
                raise
        return unit

    def outcome(self, unit_id: int, *, since: int = 0) -> UowState | None:
        """What became of a unit of work, where the answer to its commit was lost; see `QueueManager.outcome`."""
        if not since and type(unit_id) is int:  # the daemon refuses anything else
            since = self._unknown_units.get(unit_id, 0)
        return self._call("outcome", unit_id, since=since)

    def in_doubt(self) -> list[Xid]:
        """The prepared units of work that nobody has resolved yet."""
        return self._call("in_doubt")

    def resolve(self, xid: Xid, commit: bool) -> None:
        """End a unit of work that is in doubt. Raises Mistake when none of that name is."""
        check_resolution(xid, commit)
        self._call("resolve", xid, commit)

    def transactions(self) -> list[TransactionInfo]:
        """Every unit of work that has not ended, oldest first."""
        return self._call("transactions")

    def connections(self) -> list[ConnectionInfo]:
        """The clients of the queue manager, each with its units of work."""
        return self._call("connections")

    def stop_connection(self, number: int, *, quiesce: bool = False) -> None:
        """End a client's connection, as STOP CONN does; see `QueueManager.stop_connection`."""
        self._call("stop_connection", number, quiesce=quiesce)

    # ---- objects

    def define_queue(self, name: str, **attributes: Unpack[QueueAttributes]) -> QueueInfo:
        """Define a local queue; the keywords are the MQSC attributes in words. Raises AlreadyExists (2100)."""
        return self._call("define_queue", name, **attributes)

    def alter_queue(self, name: str, **attributes: Unpack[QueueAttributes]) -> QueueInfo:
        """Change attributes of a queue."""
        return self._call("alter_queue", name, **attributes)

    def delete_queue(self, name: str, purge: bool = False) -> None:
        """Delete a queue; with its messages if `purge`. Raises ObjectInUse (2055; 2042 with uncommitted messages)."""
        self._call("delete_queue", name, purge=purge)

    def clear_queue(self, name: str) -> int:
        """Remove all messages of a queue, also where gets are disabled; return how many. A crash may leave some."""
        return self._call("clear_queue", name)

    def queues(self) -> list[QueueInfo]:
        """All queues, by name."""
        return self._call("queues")

    def queue(self, name: str) -> QueueInfo:
        """The definition of a queue, and its depth. Raises UnknownQueue (2085)."""
        return self._call("queue", name)

    def define_alias(self, name: str, target: str, **attributes: Unpack[AliasAttributes]) -> AliasDefinition:
        """Define another name for a queue; see `QueueManager.define_alias`."""
        return self._call("define_alias", name, target, **attributes)

    def alter_alias(self, name: str, **attributes: Unpack[ChangedAlias]) -> AliasDefinition:
        """Change attributes of an alias."""
        return self._call("alter_alias", name, **attributes)

    def delete_alias(self, name: str) -> None:
        """Delete an alias; the queue stays."""
        self._call("delete_alias", name)

    def aliases(self) -> list[AliasDefinition]:
        """All aliases, by name."""
        return self._call("aliases")

    # ---- operations

    def mqsc(self, text: str) -> MqscResult:
        """Run MQSC commands; what goes wrong with one of them is in the result."""
        return self._call("mqsc", text)

    def checkpoint(self) -> None:
        """Take a checkpoint now. Raises StorageFull (2192) when the disk has no room for it."""
        self._call("checkpoint")

    def record_image(self, queue: str | Iterable[str] | None = None) -> list[str]:
        """Record media images of a queue, of some, or of all and the definitions (rcdmqimg); the names recorded."""
        return self._call("record_image", several(queue))

    def record_definitions(self) -> None:
        """Record the media image of all definitions: those of the queues and of the queue manager."""
        self._call("record_definitions")

    def oldest_extents(self) -> tuple[str, str]:
        """The names of the oldest log extents that a restart and media recovery need; the error log says them too."""
        return self._call("oldest_extents")

    def recreate(self, queue: str, *, progress: Progress = no_progress) -> QueueInfo:
        """Build a damaged queue again from its media image and the log (rcrmqobj); see `QueueManager.recreate`."""
        return self._call("recreate", queue, progress=progress)

    def archive_log(
        self, *, older_than: str | int = 0, dry_run: bool = False, progress: Progress = no_progress
    ) -> Outcome:
        """Move the log extents that no restart needs to the archive; see `QueueManager.archive_log`."""
        return self._call("archive_log", older_than=older_than, dry_run=dry_run, progress=progress)

    def compress_log(
        self, *, older_than: str | int = 0, dry_run: bool = False, progress: Progress = no_progress
    ) -> Outcome:
        """Compress the log extents that no restart needs; see `QueueManager.compress_log`."""
        return self._call("compress_log", older_than=older_than, dry_run=dry_run, progress=progress)

    def remove_log(self, *, older_than: str | int, dry_run: bool = False, progress: Progress = no_progress) -> Outcome:
        """Delete the oldest log extents, up to the first that is still needed; see `QueueManager.remove_log`."""
        return self._call("remove_log", older_than=older_than, dry_run=dry_run, progress=progress)

    def advance_log(self) -> str:
        """Go on in a new log extent, whose name is returned; see `QueueManager.advance_log`."""
        return self._call("advance_log")

    def reduce_log(self, how: str | int = "AUTO") -> int:
        """Remove log extents that nothing needs; how many went; see `QueueManager.reduce_log`."""
        return self._call("reduce_log", how)

    def note_archived(self, extent: str, *, all_before: bool = False) -> None:
        """Somebody else has archived this log extent, or all up to it (SET LOG ARCHIVED, LogManagement=Archive)."""
        self._call("note_archived", extent, all_before=all_before)

    def alter(self, **attributes: Unpack[QmgrAttributes]) -> QmgrDefinition:
        """Change attributes of the queue manager: those of ALTER QMGR, in words."""
        return self._call("alter", **attributes)

    def authorize(
        self, user: str, profile: str = "", *, add: Iterable[str] = (), remove: Iterable[str] = ()
    ) -> QmgrDefinition:
        """Give a user rights on the queues that a profile fits, and take others away; "": on the queue manager."""
        return self._call("authorize", user, profile, add=several(add), remove=several(remove))

    def unauthorize(self, user: str, profile: str = "") -> QmgrDefinition:
        """Remove the grant of this user and profile, and its rights with it. Raises Mistake where there is none."""
        return self._call("unauthorize", user, profile)

    @property
    def attributes(self) -> QmgrDefinition:
        """The attributes of the queue manager."""
        return self._call("attributes")

    def status(self) -> Status:
        """How the queue manager and its log stand."""
        return self._call("status")

    def end(self, mode: str = "quiesce") -> None:
        """End the queue manager, as endmqm does; not only this connection, which `close` is for.

        "quiesce" lets the units of work end that other threads or clients have begun; what this thread has begun and
        not ended is backed out.
        """
        link = self._ask_to_end(mode)
        link.await_end()
        link.close()
        self._target.await_end()

    def _ask_to_end(self, mode: str) -> Link:
        """Ask for the end without waiting for it; over which link."""
        check_end_mode(mode)
        link = self._connected()
        for unit in list(link.open_units.values()):
            if unit.thread is this_thread():
                with contextlib.suppress(MQError):
                    unit.give_up()
        self._stream(wire.call("end", [mode], {}), link)
        return link


class _Cursor:
    """The daemon's number of a browse, let go of along with the generator, whether that was begun or not."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.number = 0  # 0: there are no more pages

    def read(self, queue: str, answers: list[tuple[bytes, wire.Reply]]) -> list[Message]:
        """The messages of a page."""
        found: list[Message] = []
        for answer, head in answers:
            messages, self.number, _ = wire.page_messages(answer, head, queue)
            found += messages
        return found

    def __del__(self) -> None:
        if self.number and not self.link.broken:
            self.link.unclosed_cursors.append(self.number)  # left to the next `_stream`: __del__ may run anywhere


class RemoteReplay:
    """The iterator that `Connection.replay` returns. At its end, or after an error, begin another one."""

    def __init__(self, connection: Connection, link: Link, queue: str | int, start: Where, end: Where | None) -> None:
        self._connection = connection
        self._link = link
        self._turn = threading.RLock()  # of the threads that share this; a signal's handler may strike in its own turn
        self._page_limit = FIRST_PAGE
        self._end: BaseException | None = StopIteration()  # until it has begun
        asked = values.dumps({"queue": queue, "start": start, "end": end, "most": self._page_limit})
        self._fetch_page(wire.request(wire.REPLAY, 0, 0, "", asked))
        self._bookmark = self._page.first
        self._end = None

    def _fetch_page(self, frame: bytes) -> None:
        [(answer, head)] = self._connection._stream(frame, self._link)
        self._page = wire.decode_replay_page(answer, head)
        self._next = 0

    @property
    def bookmark(self) -> str:
        """Where to go on later: behind the last message that it gave; at its end, behind all that it has read."""
        return self._bookmark

    @property
    def left_out(self) -> int:
        """How many units of work were left out because the log has no longer all of them; only with "oldest"."""
        return self._page.left_out

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Replayed:
        if self._link.forked and self._end is None:  # before its turn, which a thread of the parent may have for ever
            text = "this replay is the parent's of this process; a forked child begins another one"
            raise Unavailable(text, reason=Reason.HCONN_ERROR, name=self._connection.name)
        with self._turn:
            if self._end is not None:
                raise self._end.with_traceback(None)
            try:
                if self._connection._closed:
                    raise links.closed(self._connection.name)
                while self._next == len(self._page.messages):
                    self._bookmark = self._page.bookmark
                    if not self._page.cursor:
                        raise StopIteration
                    self._page_limit = min(2 * self._page_limit, MAX_PAGE)
                    self._fetch_page(wire.next_page(self._page.cursor, self._page_limit))
            except BaseException as exc:
                self._end = exc
                self._leave()  # the daemon may have it still
                raise
            found = Replayed(*self._page.messages[self._next])
            self._next += 1
            self._bookmark = found.bookmark
            return found

    def close(self) -> None:
        """Let go of the log; also done at the end."""
        if self._link.forked:  # as above
            return
        with self._turn:
            if self._end is None:
                self._end = StopIteration()
                if self._page.cursor and not self._link.broken:
                    with contextlib.suppress(Broken, MQError):
                        self._link.close_cursor(self._page.cursor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _leave(self) -> None:
        if self._page.cursor and not self._link.broken:
            self._link.unclosed_cursors.append(self._page.cursor)

    def __del__(self) -> None:
        if self._end is None:
            self._leave()
