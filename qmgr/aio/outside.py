"""The asynchronous face of a queue manager that a daemon runs: the client protocol on an event loop, no threads."""

import asyncio
import contextlib
import functools
import weakref
from collections import OrderedDict
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from qmgr import values, wire
from qmgr.aio.channel import Channel, Pool
from qmgr.aio.outside_unit import OutsideUnit
from qmgr.aio.pages import Answers, Browse, OutsideReplay
from qmgr.aio.units import calling_task, cancel_later, forget, in_thread, running_loop, to_the_end
from qmgr.client import MAX_UNKNOWN_UNITS
from qmgr.errors import MQError, NoMessageAvailable, Reason, Unavailable, UnitOfWorkEnded
from qmgr.link import Broken, Link, NotSent, Target, closed, decode_all, lost
from qmgr.message import Message, check_bodies, check_body
from qmgr.remote import leaves_open, maybe_in_doubt, wire_wait
from qmgr.replay import Where
from qmgr.sends import BATCH_BYTES, fits
from qmgr.targets import Remote
from qmgr.verbs import GetOptions, PutOptions, Wanted, check_end_mode, check_resolution
from recovery.records import Xid
from recovery.uows import ACTIVE, BACKED_OUT, COMMITTED, PREPARED

T = TypeVar("T")
MAY_TAKE_LONG = frozenset((wire.CALL, wire.PUT_MANY))  # and its answer is not missed where it is given up


class Outside:
    """Backend: a queue manager that a daemon runs."""

    def __init__(self, target: Target, application: str, link: Link) -> None:
        self.name = target.name
        self._target = target
        self._application = application
        self._pool = Pool(target, link)
        self._connecting: asyncio.Task[None] | None = None
        self._closed = False
        self._units: weakref.WeakSet[OutsideUnit] = weakref.WeakSet()
        self._unknown_units: OrderedDict[int, int] = OrderedDict()  # whose commit was not answered; since when

    # ---- the session

    async def _connected(self) -> Pool:
        """The session; a new one where the last was lost. Raises Unavailable (2018: closed), and as a new `Link`."""
        loop = running_loop()
        if not self._closed:
            self._pool.link.check(self.name)
        if self._pool.link.broken and not self._closed:
            connecting = self._connecting
            if connecting is None or connecting.done() or connecting.get_loop() is not loop:
                connecting = self._connecting = asyncio.ensure_future(self._connect())
                connecting.add_done_callback(forget)
            await asyncio.shield(connecting)
        self.check_open()
        return self._pool

    async def _connect(self) -> None:
        """Make a new session for all who wait for one; to the end if they are cancelled: the next call needs it."""
        replaces = "" if self._pool.link.forked else self._pool.link.token
        timeout = self._pool.link.timeout
        link = await in_thread(functools.partial(Link, self._target, self._application, timeout, replaces))
        self._pool = Pool(self._target, link)
        if self._closed:
            await self.close()

    def check_open(self) -> None:
        """Raises Unavailable (2018) once it is closed."""
        if self._closed:
            raise closed(self.name)

    @property
    def forked(self) -> bool:
        """Is this a fork of the process that has connected? Nothing of the session can be used there."""
        return self._pool.link.forked

    async def close(self) -> None:
        self._closed = True
        if self.forked:
            return
        try:
            await in_thread(self._pool.link.leave)  # what was begun is backed out by then
        finally:
            self._pool.close()

    async def _pool_of(self, unit: OutsideUnit, *, settled: bool = True) -> Pool:
        """The session of a unit of work, which may go on; `settled`: when all that was sent before is put.

        Raises UnitOfWorkEnded, BackedOut, and what was refused of that.
        """
        unit.check_whole()
        if unit.pool is None:
            pool = await self._connected()
            unit.check_whole()  # another task may have ended it
            if unit.pool is None:  # or was quicker
                unit.pool, unit.session_number = pool, next(pool.link.units)
        if unit.xid is not None and unit.begin_flag:
            request = wire.request(wire.BEGIN_UNIT, unit.begin_flag, unit.session_number, "", values.dumps(unit.xid))
            unit.asked = True
            unit.decode(await self._exchange(unit.pool, request))
        if settled:
            await self._settle(unit, unit.pool)
        return unit.pool

    async def _settle(self, unit: OutsideUnit, pool: Pool) -> None:
        """Have the daemon put what was sent. Where one of them is refused, it backs out the unit of work.

        Raises as `check_whole`: another task may have heard that, or was cancelled.
        """
        if not (unit.sends or unit.sending.locked()):
            return
        async with unit.sending:
            channel = await self._channel(pool) if unit.sends else None  # where this raises they are not lost
            if channel is not None and not unit.sends:  # another task has backed it out meanwhile
                pool.free(channel)
            elif channel is not None:
                frame = wire.sends(unit.begin_flag, unit.session_number, unit.sends)
                unit.sends, unit.sends_bytes = [], 0
                unit.asked = True
                try:
                    answers = await self._answer(channel.ask(frame))
                except BaseException:
                    unit.sends_lost = True
                    raise
                try:
                    unit.decode(answers)
                except UnitOfWorkEnded:
                    unit.sends_lost = True
                    raise
                except MQError:
                    unit.known_state, unit.evicted = BACKED_OUT, False
                    raise
        unit.check_whole()

    async def _exchange(self, pool: Pool, frame: bytes) -> list[bytes]:
        """Ask, and return the frames of the answer. Goes on when this task is cancelled; the answer is lost then.

        Where the call may be one that takes long the daemon is told: it leaves out what it has not begun by then.
        """
        channel, answer = await self._send(pool, frame)
        try:
            return await self._answer(answer)
        except asyncio.CancelledError:
            if frame[4] in MAY_TAKE_LONG and not answer.done():  # else the channel carries another call by now
                channel.give_up()
            raise

    async def _send(
        self, pool: Pool, frame: bytes, *, waits: bool = False
    ) -> "tuple[Channel, asyncio.Future[list[bytes]]]":
        if len(frame) > pool.link.longest:
            raise wire.too_long(len(frame), pool.link.longest)
        channel = await self._channel(pool, waits=waits)
        return channel, channel.ask(frame)

    async def _channel(self, pool: Pool, *, waits: bool = False) -> Channel:
        """Take a channel for a request; where this raises, nothing was asked for. `waits`: for a get that waits."""
        try:
            return await (pool.take_to_wait() if waits else pool.take())
        except Broken as exc:
            raise lost(self.name, NotSent(str(exc))) from exc

    async def _answer(self, answer: "asyncio.Future[list[bytes]]") -> list[bytes]:
        try:
            return await asyncio.shield(answer)
        except Broken as exc:
            raise lost(self.name, exc) from exc

    async def _ask_to_end(self, unit: OutsideUnit, pool: Pool, op: int) -> "asyncio.Future[list[bytes]]":
        """Ask for the end of a unit of work. Where this raises, nothing was sent, and nothing is done."""
        with self._backed_out_if_lost(unit, pool):
            channel = await self._channel(pool)
        unit.asked, unit.end_asked = True, unit.end_asked or op
        return channel.ask(wire.request(op, unit.begin_flag, unit.session_number))

    @contextlib.contextmanager
    def _backed_out_if_lost(self, unit: OutsideUnit, pool: Pool) -> Iterator[None]:
        """In the block its end is not asked for yet: where the connection is lost, the unit was backed out."""
        try:
            yield
        except Unavailable:
            pool.link.is_lost()
            unit.check()
            raise

    async def _await_end(self, unit: OutsideUnit, answer: "asyncio.Future[list[bytes]]") -> None:
        """Await the answer to a commit or prepare, and note what it says. Raises its error, or that it was lost."""
        try:
            unit.decode(await self._answer(answer))
        except MQError as exc:
            lost = exc.reason == Reason.CONNECTION_BROKEN
            if not lost and (unit.begin_flag or leaves_open(exc)):
                unit.end_asked = 0
            elif isinstance(exc, Unavailable) and unit.known_state is ACTIVE:  # lost, or the queue manager has stopped
                self._note_lost_end(unit)
            if lost and unit.known_state is PREPARED:
                raise maybe_in_doubt(unit.number, self.name) from exc
            if lost and unit.outcome_unknown:
                text = unit.ask_for_outcome()
                raise Unavailable(text, reason=Reason.CONNECTION_BROKEN, name=self.name) from exc
            raise

    def _note_lost_end(self, unit: OutsideUnit) -> None:
        if unit.end_asked == wire.PREPARE:
            unit.known_state = PREPARED  # or not: to say that it was backed out would be a guess
            return
        unit.outcome_unknown = True
        self._unknown_units[unit.number] = unit.since_lsn
        if len(self._unknown_units) > MAX_UNKNOWN_UNITS:
            self._unknown_units.popitem(last=False)

    async def _ask(self, unit: OutsideUnit | None, op: Any) -> Answers:
        """Make a request, `op(flags, unit)`, and hear the answer."""
        if unit is None:
            pool = await self._connected()
            return decoded(await self._exchange(pool, op(0, 0)))
        pool = await self._pool_of(unit)
        frame = op(unit.begin_flag, unit.session_number)
        unit.asked = True
        return unit.decode(await self._exchange(pool, frame))

    # ---- units of work

    def new_unit(self, xid: Xid | None) -> OutsideUnit:
        self.check_open()
        running_loop()
        unit = OutsideUnit(xid)
        self._units.add(unit)
        return unit

    async def begin(self, unit: OutsideUnit) -> None:
        if unit.xid is not None and unit.begin_flag:
            try:
                await self._pool_of(unit)
            except asyncio.CancelledError:  # it may have begun, and nobody has it
                with contextlib.suppress(MQError):
                    await to_the_end(self.leave(unit))
                raise

    async def prepare(self, unit: OutsideUnit) -> None:
        if unit.known_state is PREPARED:
            raise UnitOfWorkEnded(f"unit of work {unit.number} is prepared; commit it or back it out")
        with unit.no_more_sends():
            pool = await self._pool_of(unit, settled=False)
            with self._backed_out_if_lost(unit, pool):
                await self._settle(unit, pool)
            answer = await self._ask_to_end(unit, pool, wire.PREPARE)
            preparing = asyncio.ensure_future(self._prepared(unit, answer))  # goes on where this task is cancelled
            preparing.add_done_callback(forget)
            await asyncio.shield(preparing)

    async def _prepared(self, unit: OutsideUnit, answer: "asyncio.Future[list[bytes]]") -> None:
        with unit.no_more_sends():
            await self._await_end(unit, answer)
        if unit.known_state is ACTIVE:  # another task has not backed it out
            unit.known_state = PREPARED
        unit.end_asked = 0

    async def commit(self, unit: OutsideUnit) -> None:
        unit.check_whole()
        if unit.pool is None or not (unit.asked or unit.sends):  # nothing was done in it
            unit.known_state = COMMITTED
            return
        committing = asyncio.ensure_future(self._commit(unit, unit.pool))
        committing.add_done_callback(forget)
        try:
            await asyncio.shield(committing)
        except asyncio.CancelledError:
            committing.add_done_callback(functools.partial(self._leave_if_refused, unit))
            raise

    def _leave_if_refused(self, unit: OutsideUnit, committing: "asyncio.Task[None]") -> None:
        """Nobody waits for this commit any more: a unit of work that goes on, since it was refused, is backed out."""
        if not committing.cancelled() and committing.exception() is not None and unit.known_state is ACTIVE:
            backing_out = asyncio.ensure_future(self.leave(unit))  # which is refused where the outcome is not known
            backing_out.add_done_callback(forget)

    async def _commit(self, unit: OutsideUnit, pool: Pool) -> None:
        with unit.no_more_sends():
            await self._settle(unit, pool)
            unit.check_whole()
            if not unit.number:  # the answer to its first call was lost: by no number could its outcome be asked for
                with self._backed_out_if_lost(unit, pool):
                    begin = wire.request(wire.BEGIN_UNIT, unit.begin_flag, unit.session_number, "", b"")
                    unit.decode(await self._exchange(pool, begin))
                unit.check_whole()
            await self._await_end(unit, await self._ask_to_end(unit, pool, wire.COMMIT))
            unit.known_state = COMMITTED

    async def backout(self, unit: OutsideUnit) -> None:
        unit.check_ours()
        if unit.known_state is ACTIVE and (unit.sends or unit.sending.locked()):
            unit.sends_lost = True  # where this fails the unit of work can't be committed without them
        unit.sends, unit.sends_bytes = [], 0
        gone = unit.pool is None or unit.pool.link.broken or unit.get_lost or not unit.asked
        known = unit.known_state is ACTIVE and not unit.outcome_unknown and not unit.end_asked
        if known and gone:
            unit.known_state, unit.evicted = BACKED_OUT, False  # the daemon did so, or has never heard of it
            return
        unit.check()
        assert unit.pool is not None
        try:
            unit.decode(await self._exchange(unit.pool, unit.backout_request()))
        except Unavailable as exc:
            if exc.reason != Reason.CONNECTION_BROKEN:
                if known and exc.reason == Reason.Q_MGR_STOPPING:
                    unit.known_state, unit.evicted = BACKED_OUT, False  # by the queue manager, as it ended at once
                raise
            if unit.known_state is PREPARED or unit.end_asked:
                unit.pool.link.is_lost()
                unit.check()
                raise
        unit.known_state, unit.evicted = BACKED_OUT, False

    async def leave(self, unit: OutsideUnit) -> None:
        try:
            await self.backout(unit)
        except UnitOfWorkEnded:
            raise
        except MQError:
            pool = unit.pool
            if pool is None or pool.link.broken or unit.known_state is not ACTIVE or unit.outcome_unknown:
                raise
            pool.back_out_later(unit.backout_request())  # there was no socket for it
            if not unit.end_asked:
                unit.known_state, unit.evicted = BACKED_OUT, False

    # ---- messages

    async def put(self, unit: OutsideUnit | None, queue: str, body: bytes, options: PutOptions) -> Message:
        checked = body if type(body) is bytes else check_body(body)
        [(answer, head)] = await self._ask(unit, lambda flags, number: wire.put(flags, number, queue, checked, options))
        return wire.put_message(answer, head, queue, checked)

    async def send(self, unit: OutsideUnit, queue: str, body: bytes, options: PutOptions) -> None:
        if unit.known_state is PREPARED:
            await self.put(unit, queue, body, options)  # which is refused
        try:
            pool = await self._pool_of(unit, settled=False)
            put = wire.put(0, unit.session_number, queue, body if type(body) is bytes else check_body(body), options)
            while not fits(put, unit.sends_bytes, pool.link.longest):  # other tasks send too
                await self._settle(unit, pool)
            unit.add_put(put)
            if unit.sends_bytes >= BATCH_BYTES:
                await self._settle(unit, pool)
        except UnitOfWorkEnded:  # which may mean that it is prepared, and that is not ours to undo
            raise
        except Exception as exc:
            unit.sends_lost = True
            if unit.known_state is ACTIVE and getattr(exc, "reason", None) != Reason.CONNECTION_BROKEN:
                with contextlib.suppress(MQError):
                    await self.backout(unit)
            raise

    async def settle(self, unit: OutsideUnit) -> None:
        if unit.pool is not None and (unit.sends or unit.sending.locked()):
            unit.check_whole()
            with self._backed_out_if_lost(unit, unit.pool):
                await self._settle(unit, unit.pool)

    async def put_many(
        self, unit: OutsideUnit | None, queue: str, bodies: Iterable[bytes], options: PutOptions
    ) -> list[Message]:
        checked = check_bodies(bodies)
        answers = await self._ask(unit, lambda flags, number: wire.put_many(flags, number, queue, checked, options))
        return wire.put_messages(answers, queue, checked)

    async def get(
        self, unit: OutsideUnit | None, queue: str, limit: int, wait: Any, options: GetOptions
    ) -> list[Message]:
        seconds = wire_wait(wait)
        tls = isinstance(self._target, Remote) and self._target.tls is not None
        if unit is None and seconds and tls:
            return await self._get_in_own_unit(queue, limit, wait, options)
        pool = await (self._connected() if unit is None else self._pool_of(unit))
        flags, number = (0, 0) if unit is None else (unit.begin_flag, unit.session_number)
        if limit == 1:
            frame = wire.get(flags, number, queue, seconds, options)
        else:
            frame = wire.get_many(flags, number, queue, limit, seconds, options)
        if unit is not None:
            unit.asked = True
        try:
            sent = await self._send(pool, frame, waits=seconds != 0.0)
            answers = await self._await_get(unit, *sent, patient=unit is None and tls)
            found = decoded(answers) if unit is None else unit.decode(answers)
        except NoMessageAvailable:
            return []
        if limit == 1:
            return [wire.got_message(*found[0], queue)]
        return wire.got_messages(found, queue)

    async def _get_in_own_unit(self, queue: str, limit: int, wait: Any, options: GetOptions) -> list[Message]:
        """Over TLS a call can't be given up without losing its answer: so this one can be backed out."""
        unit = self.new_unit(None)
        found: list[Message] = []
        try:
            found = await self.get(unit, queue, limit, wait, options)
        finally:
            if not found:
                with contextlib.suppress(MQError):
                    await to_the_end(self.leave(unit))

        async def keep() -> list[Message]:
            try:
                await self.commit(unit)
            except MQError:
                with contextlib.suppress(MQError):  # as where its outcome is not known
                    await self.leave(unit)
                raise
            return found

        return await to_the_end(keep()) if found else []

    async def _await_get(
        self, unit: OutsideUnit | None, channel: Channel, answer: "asyncio.Future[list[bytes]]", *, patient: bool
    ) -> list[bytes]:
        """The answer to a get. If this task is cancelled the daemon is told not to wait any more.

        So either no message is taken, or it is returned all the same. `patient`: it does not wait, and its answer would
        be lost by that.
        """
        try:
            return await asyncio.shield(answer)
        except Broken as exc:
            raise lost(self.name, exc) from exc
        except asyncio.CancelledError:
            if not answer.done() and not patient:  # else the channel carries another call by now
                channel.give_up()
            try:
                answers = await until_done(answer)
            except Broken:
                answers = []
                if unit is not None:  # the daemon may have taken a message, and said so to nobody
                    await until_done(asyncio.ensure_future(self._note_lost_get(unit)))
            if not answers or not brings_messages(answers):
                raise
            cancel_later()
            return answers

    async def _note_lost_get(self, unit: OutsideUnit) -> None:
        """Back the unit of work out, as nobody knows what was got in it; the next call made in it says so."""
        with contextlib.suppress(MQError):
            await self.leave(unit)
        unit.known_state, unit.get_lost = ACTIVE, True

    async def dead_letter(self, unit: OutsideUnit | None, message: Message, reason: int) -> Message:
        [(answer, head)] = await self._ask(
            unit, lambda flags, number: wire.call("dead_letter", [message, reason], {}, flags=flags, unit=number)
        )
        put: Message = values.loads(answer[head.at :])
        return put

    def browse(self, queue: str, selectors: Wanted) -> Browse:
        return Browse(self, queue, selectors)

    def replay(self, queue: str | int, start: Where, end: Where | None) -> OutsideReplay:
        return OutsideReplay(self, queue, start, end)

    async def page(self, pool: Pool | None, frame: bytes) -> tuple[Pool, Answers]:
        """A page of a browse or a replay. Those that nobody reads any more are given up first."""
        pool = pool or await self._connected()
        cursors = pool.link.unclosed_cursors
        while cursors:
            cursor = cursors.pop()
            try:
                await self._exchange(pool, wire.request(wire.CLOSE, 0, cursor))
            except MQError:  # there is no socket for it
                cursors.append(cursor)
                raise
        return pool, decoded(await self._exchange(pool, frame))

    # ---- all else

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        if method == "outcome" and type(args[0]) is int:
            options["since"] = options["since"] or self._unknown_units.get(args[0], 0)
        elif method == "resolve":
            check_resolution(args[0], args[1])
        [(answer, head)] = decoded(await self._exchange(await self._connected(), wire.call(method, args, options)))
        return values.loads(answer[head.at :])

    def end(self, mode: str) -> Coroutine[Any, Any, None]:
        return self._end(mode, calling_task())

    async def _end(self, mode: str, caller: "asyncio.Task[Any] | None") -> None:
        check_end_mode(mode)
        running_loop()
        caller = caller or asyncio.current_task()
        for unit in list(self._units):
            if unit.task is caller and unit.known_state is ACTIVE:
                with contextlib.suppress(MQError):
                    await self.backout(unit)
        pool = await self._connected()
        await self.call("end", mode)
        await in_thread(pool.link.await_end)
        pool.link.close()  # and not its channels: the answers to other tasks may still have to be read
        await in_thread(self._target.await_end)


def decoded(answers: list[bytes]) -> Answers:
    """The frames of an answer with their heads. Raises the error that it is."""
    return list(decode_all(answers))


def brings_messages(answers: list[bytes]) -> bool:
    """Are there messages in this answer to a get?"""
    head = wire.decode_reply(answers[0])
    return head.op == wire.OK and len(answers[0]) > head.at + wire.PAGE.size


async def until_done(future: "asyncio.Future[T]") -> T:
    """Wait for it, however often this task is cancelled meanwhile."""
    while not future.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([future])
    return future.result()
