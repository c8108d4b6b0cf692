"""All queues and units of work. `apply(record)` is the only durable change, live and in replay."""

import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

from qmgr.batch import MessageRun, message_runs
from qmgr.entry import Entry, read_entry
from qmgr.front import Front
from qmgr.message import Descriptor
from qmgr.objects import AliasDefinition, QmgrDefinition, QueueDefinition, decode_alias, decode_definition, decode_qmgr
from qmgr.queue import Queue
from qmgr.segments import large_bytes
from recovery import records, uows
from recovery.errors import QueueDamaged
from recovery.image import ImagePlace
from recovery.uows import Uow, UowTable

QUEUE = itemgetter(0)  # of a get of a unit of work
FEW_CALLS = 2  # up to so many, a loop is quicker than groups
MAX_UNLOGGED = 1000  # units of work with nothing in the log that are remembered
MAX_ENDED = 5000  # units of work whose outcome is remembered; twice as many at the most


class PutRun(MessageRun):
    """Messages that a unit of work has put to a queue, one after the other."""

    __slots__ = ("like", "ordinal", "queue")

    def __init__(
        self,
        queue: Queue,
        heads: list[bytes],
        bodies: list[bytes],
        persistent: int,
        priority: int,
        expiring: bool,
        like: Descriptor | None = None,
    ) -> None:
        super().__init__(heads, bodies, persistent, priority, expiring)
        self.queue = queue
        self.ordinal = 0  # of the first among all that the unit has put
        self.like = like  # a put of just this may go on with it; None: none

    def to(self, queue: Queue) -> "PutRun":
        """The same messages as a run that was put to another queue, which takes the place of this one's."""
        run = PutRun(queue, self.heads, self.bodies, self.persistent, self.priority, self.expiring, self.like)
        run.ordinal = self.ordinal
        return run


class State(ABC):
    """What the log protects. The log's lock guards it."""

    __slots__ = (
        *("_effects", "aliases", "backed_out", "by_id", "catalog", "cataloging", "committed", "ended", "ended_before"),
        *("forgotten", "holding", "imaged", "next_queue", "next_segment", "on_damage", "qmgr", "queues", "retired"),
        *("retired_bytes", "unlogged", "uows"),
    )

    def __init__(self, *, imaged: bool) -> None:
        """`imaged`: there are media images, since the log is linear."""
        self.imaged = imaged
        self.qmgr = QmgrDefinition()
        self.catalog = 0  # LSN of the last image of all definitions
        self.cataloging = 0  # of the one that was begun
        self.queues: dict[str, Queue] = {}
        self.by_id: dict[int, Queue] = {}
        self.aliases: dict[str, AliasDefinition] = {}
        self.committed = self.backed_out = 0  # units of work, since the start
        self.unlogged: deque[int] = deque()  # the units of work committed last of which the log has nothing
        self.forgotten = 0  # the highest number that was dropped from `unlogged`
        self.ended: dict[int, uows.UowState] = {}  # outcomes of the units of work that ended last, but for `unlogged`
        self.ended_before: dict[int, uows.UowState] = {}
        self.uows = UowTable()
        self.holding: dict[Uow, None] = {}  # units of work with calls that are not logged yet, in their order
        self.next_queue = 1
        self.next_segment = 1
        self.retired: list[tuple[str, int]] = []  # (queue name, segment): no checkpoint to come refers to them
        self.retired_bytes = 0  # of their files that are not small, about
        self.on_damage: Callable[[Queue], None] = lambda queue: None
        self._effects: dict[type[Any], Callable[[Any, int, int, int], None]] = {
            records.Put: self._put,
            records.PutMany: self._put_many,
            records.Get: self._get,
            records.Expire: self._get,
            records.Calls: self._calls,
            records.Commit: self._commit,
            records.Backout: self._backout,
            records.Prepare: self._prepare,
            records.RollForward: self._roll_forward,
            records.Define: self._define,
            records.Delete: self._delete,
            records.DefineAlias: self._define_alias,
            records.DeleteAlias: self._delete_alias,
            records.AlterQmgr: self._alter_qmgr,
            records.ImageEnd: self._image_end,
            records.Catalog: self._take_catalog,
            records.ImageStart: self._image_start,
            records.ImagePart: self._nothing,
            records.CheckpointMark: self._nothing,
            records.Fill: self._nothing,
        }

    def apply(self, record: records.Record, lsn: int, end: int, time: int) -> None:
        """Make the change; `lsn` and `end` are 0 for a record that is not logged. Raises KeyError if it can't fit."""
        self._effects[type(record)](record, lsn, end, time)

    @contextlib.contextmanager
    def observed(self, observe: Callable[[records.UnitRecord, int, int, int], None]) -> Iterator[None]:
        """In the block `observe` gets each commit, backout, prepare and roll-forward that is applied, and its place."""
        kinds = records.Commit, records.Backout, records.Prepare, records.RollForward
        effects = {kind: self._effects[kind] for kind in kinds}

        def both(record: Any, lsn: int, end: int, time: int) -> None:
            effects[type(record)](record, lsn, end, time)
            observe(record, lsn, end, time)

        self._effects |= dict.fromkeys(kinds, both)
        try:
            yield
        finally:
            self._effects |= effects

    @abstractmethod
    def new_queue(self, definition: QueueDefinition) -> Queue:
        """An empty queue."""

    def damage(self, queue: Queue, exc: QueueDamaged) -> None:
        """Nothing can be done with the queue any more: what a segment holds of it can't be read."""
        queue.damage(str(exc))
        queue.bad_file = exc.path
        self.on_damage(queue)

    def _find(self, queue: Queue, sequence: int) -> Entry | None:
        """In replay, the message with this sequence. None: the queue is damaged."""
        if queue.damaged:
            return None
        try:
            return queue.find(sequence)
        except QueueDamaged as exc:
            self.damage(queue, exc)
            return None

    # ---- messages outside units of work

    def _put(self, record: records.Put, lsn: int, end: int, time: int) -> None:
        queue = self.by_id[record.queue]
        if not queue.damaged:
            queue.last_put = time
            queue.depth += 1
            queue.add(record.found or read_entry(record.head, record.body), record.sequence, end)

    def _put_many(self, record: records.PutMany, lsn: int, end: int, time: int) -> None:
        queue = self.by_id[record.queue]
        if not queue.damaged:
            queue.last_put = time
            queue.depth += len(record.messages)
            sequence = record.sequence
            for messages in record.found or message_runs(record.messages):
                queue.add_run(messages, sequence, end)
                sequence += len(messages.heads)

    def _get(self, record: records.Get | records.Expire, lsn: int, end: int, time: int) -> None:
        queue = self.by_id[record.queue]
        if type(record) is records.Get:
            queue.last_get = time
        found = record.found
        if isinstance(found, Front):
            queue.take_front(found)
        elif found:
            if len(found) > 1:
                queue.take_each(found)
            else:
                queue.take(found[0])
        else:
            for sequence in record.sequences:
                entry = self._find(queue, sequence)
                if entry is not None:
                    queue.take(entry)

    # ---- units of work: their calls are volatile until they are logged, at the latest with the outcome

    def hold_puts(self, unit: Uow, run: PutRun, size: int) -> None:
        """A unit of work has put messages, of `size` bytes together, which nobody sees before it commits."""
        self._hold_puts(unit, run, size, unit.put_count)

    def _hold_puts(self, unit: Uow, run: PutRun, size: int, ordinal: int) -> None:
        queue, puts, count = run.queue, unit.puts, len(run.heads)
        queue.depth += count
        queue.uncommitted += count
        if run.like is not None and puts and puts[-1].like is run.like:
            puts[-1].heads += run.heads
            puts[-1].bodies += run.bodies
        else:
            run.ordinal = ordinal
            puts.append(run)
            if run.persistent:
                unit.touched[queue.id] = queue
        unit.put_count += count
        if run.persistent:
            unit.persistent += count
            unit.put_bytes += size
        else:
            unit.unlogged_bytes += size

    def hold_get(self, unit: Uow, queue: Queue, entry: Entry) -> None:
        """A unit of work has got a message, which nobody else sees unless it is backed out."""
        queue.lock(entry)
        unit.gets.append((queue, entry))
        if entry.persistent:
            unit.persistent += 1

    def _logged(self, unit: Uow) -> None:
        """What the unit has done so far is in the log now, or of no more interest."""
        if unit.held_back:
            unit.held_back, unit.puts_logged, unit.gets_logged = 0, len(unit.puts), len(unit.gets)
            if unit.puts:
                unit.puts[-1].like = None
            del self.holding[unit]

    def _unit(self, number: int, lsn: int, time: int) -> Uow:
        """The unit of work; in replay its first record brings it into being."""
        unit = self.uows.get(number)
        if unit is None:
            unit = Uow(number, began=time)
            self.uows.add(unit)
        if lsn and not unit.first_lsn:
            unit.first_lsn = lsn
            unit.logged = time
        return unit

    def joined(self, number: int, unit: Uow, lsn: int) -> Queue | None:
        """The queue with this number, on which a unit of work has made calls; None: they are of no interest."""
        return self.by_id[number]

    def _join(
        self, unit: Uow, record: records.Calls | records.Commit | records.Backout | records.RollForward, lsn: int
    ) -> None:
        """In replay, make the calls that the record says the unit of work had made."""
        for number, ordinal, messages, sequences in records.runs(record.runs):
            queue = self.joined(number, unit, lsn)
            if queue is None:
                continue
            held = 0
            if not queue.damaged:
                for one in message_runs(messages):
                    run = PutRun(queue, one.heads, one.bodies, one.persistent, one.priority, one.expiring)
                    self._hold_puts(unit, run, sum(map(len, chain(run.heads, run.bodies))), ordinal)
                    ordinal += len(run.heads)
                messages = []
                for sequence in sequences:
                    found = self._find(queue, sequence)
                    if found is None:
                        break
                    self.hold_get(unit, queue, found)
                    held += 1
            if queue.damaged:
                self._keep_lost_calls(unit, number, ordinal, messages, sequences[held:])
        unit.puts_logged, unit.gets_logged = len(unit.puts), len(unit.gets)

    def _keep_lost_calls(
        self, unit: Uow, number: int, ordinal: int, messages: list[records.Parts], sequences: Sequence[int]
    ) -> None:
        """Keep the calls on a damaged queue as they are logged: for the log, and for when the queue is built again."""
        lost = unit.lost.setdefault(number, [])
        if messages:
            lost += (bytes(part) for part in records.run_of_puts(number, ordinal, messages))
        if sequences:
            lost.append(records.run_of_gets(number, sequences))
        unit.persistent += len(messages) + len(sequences)
        unit.put_bytes += sum(len(head) + len(body) for head, body in messages)

    def _calls(self, record: records.Calls, lsn: int, end: int, time: int) -> None:
        unit = self._unit(record.uow, lsn, time)
        if not record.done:
            self._join(unit, record, lsn)
        self._logged(unit)

    def _commit(self, record: records.Commit, lsn: int, end: int, time: int) -> None:
        unit = self.uows.get(record.uow) or self._unit(record.uow, lsn, time)
        if not record.done:
            self._join(unit, record, lsn)
        bases = record.bases
        if len(unit.gets) > FEW_CALLS:
            for queue, gets in groupby(unit.gets, QUEUE):
                queue.last_get = time
                queue.remove_each([entry for _, entry in gets])
        else:
            for queue, entry in unit.gets:
                queue.last_get = time
                queue.remove(entry)
        for run in unit.puts:
            queue, count = run.queue, len(run.heads)
            queue.last_put = time
            queue.uncommitted -= count
            base = bases.get(queue.id)
            # None: only non-persistent ones, in places that no restart has to find; or the queue was damaged then. When
            # it is built again, alone or with others, the places come out the same: they follow each other.
            sequence = queue.next_sequence if base is None else base + run.ordinal
            if count > 1:
                queue.add_run(run, sequence, end)
            else:
                queue.add(run.entry(0), sequence, end)
        self.committed += 1
        if lsn:
            self._remember(unit.number, uows.COMMITTED)
        elif unit.puts or unit.gets:
            self.unlogged.append(unit.number)
            if len(self.unlogged) > MAX_UNLOGGED:
                self.forgotten = max(self.forgotten, self.unlogged.popleft())
        self._end(unit, uows.COMMITTED)

    def _backout(self, record: records.Backout, lsn: int, end: int, time: int) -> None:
        unit = self._unit(record.uow, lsn, time)
        if not record.done:
            self._join(unit, record, lsn)
        for run in unit.puts:
            run.queue.depth -= len(run.heads)
            run.queue.uncommitted -= len(run.heads)
        for queue, entry in unit.gets:
            queue.give_back(entry, count=True)
        self.backed_out += 1
        self._remember(unit.number, uows.BACKED_OUT)
        self._end(unit, uows.BACKED_OUT)

    def _remember(self, number: int, outcome: uows.UowState) -> None:
        """For whoever asks soon what became of a unit of work: to find that in the log takes long."""
        if len(self.ended) >= MAX_ENDED:
            self.ended_before, self.ended = self.ended, {}
        self.ended[number] = outcome

    def _end(self, unit: Uow, outcome: uows.UowState) -> None:
        unit.state = outcome
        for waiter in unit.waiting:
            waiter.set()
        unit.held_back = unit.ahead = 0
        self.holding.pop(unit, None)
        unit.puts.clear()
        unit.gets.clear()
        self.uows.forget(unit.number, None)

    def _prepare(self, record: records.Prepare, lsn: int, end: int, time: int) -> None:
        unit = self._unit(record.uow, lsn, time)
        unit.xid = record.xid
        unit.state = uows.PREPARED
        for waiter in unit.waiting:
            waiter.set()

    def _roll_forward(self, record: records.RollForward, lsn: int, end: int, time: int) -> None:
        unit = self._unit(record.uow, lsn, time)
        if unit.first_lsn == lsn:  # the records that it replaces lie before the head: this is all there is
            self._join(unit, record, lsn)
        self._rolled_forward(unit, record, lsn, time)

    def _rolled_forward(self, unit: Uow, record: records.RollForward, lsn: int, time: int) -> None:
        unit.first_lsn = lsn
        unit.logged = time
        unit.xid = record.xid
        unit.state = uows.PREPARED

    # ---- definitions

    def _define(self, record: records.Define, lsn: int, end: int, time: int) -> None:
        definition = decode_definition(record.definition)
        queue = self.by_id.get(definition.id)
        if queue is not None:
            queue.redefine(definition)
            self._forget_images()
            return
        queue = self.new_queue(definition)
        if self.imaged and self.recoverable(queue):
            queue.image = ImagePlace(lsn, lsn, lsn, time)
        self.queues[definition.name] = queue
        self.by_id[definition.id] = queue
        self.next_queue = max(self.next_queue, definition.id + 1)

    def _delete(self, record: records.Delete, lsn: int, end: int, time: int) -> None:
        queue = self.by_id.pop(record.queue)
        del self.queues[queue.name]
        queue.retire()
        self.retired += ((queue.name, number) for number in queue.segments)
        self.retired_bytes += large_bytes(queue.segments.values())

    def _define_alias(self, record: records.DefineAlias, lsn: int, end: int, time: int) -> None:
        alias = decode_alias(record.definition)
        self.aliases[alias.name] = alias

    def _delete_alias(self, record: records.DeleteAlias, lsn: int, end: int, time: int) -> None:
        self.aliases.pop(record.name, None)  # a replay that begins with an image may not know it

    def _alter_qmgr(self, record: records.AlterQmgr, lsn: int, end: int, time: int) -> None:
        self.take_attributes(decode_qmgr(record.attributes))
        self._forget_images()

    def take_attributes(self, qmgr: QmgrDefinition) -> None:
        """Take the attributes of the queue manager, and have its queues take what they need of them."""
        self.qmgr = qmgr
        for queue in self.by_id.values():
            queue.take_qmgr_attributes(qmgr)

    # ---- media images

    def recoverable(self, queue: Queue) -> bool:
        """Are there to be media images of the queue?"""
        said = queue.definition.image_recoverable
        return self.qmgr.image_recover_queues if said == "QMGR" else said == "YES"

    def _forget_images(self) -> None:
        """Forget the images of queues that are to have none any more (IMGRCOVQ): the log they need may then go."""
        for queue in self.by_id.values():
            if queue.image is not None and not self.recoverable(queue):
                queue.image = None
                queue.changed = True

    def _image_start(self, record: records.ImageStart, lsn: int, end: int, time: int) -> None:
        queue = self.by_id.get(record.queue)
        if queue is not None:
            queue.imaging = lsn

    def _image_end(self, record: records.ImageEnd, lsn: int, end: int, time: int) -> None:
        queue = self.by_id.get(record.queue)
        if queue is not None and self.recoverable(queue):  # else it was deleted, or altered, meanwhile
            queue.image = ImagePlace(record.start, record.checkpoint, record.media, time)
            queue.changed = True

    def _take_catalog(self, record: records.Catalog, lsn: int, end: int, time: int) -> None:
        if record.flags & records.CATALOG_FIRST:
            self.cataloging = lsn
        if record.flags & records.CATALOG_LAST and self.cataloging:
            self.catalog, self.cataloging = self.cataloging, 0

    def media_lsn(self) -> int:
        """The first LSN that the recovery of any object needs; 0: there is no image."""
        places = [queue.image.media for queue in self.by_id.values() if queue.image is not None]
        return min([*places, self.catalog] if self.catalog else places, default=0)

    def _nothing(self, record: records.Record, lsn: int, end: int, time: int) -> None:  # noqa: B027
        """The record is there to be read."""
