"""All that a caller may see of queues, aliases and units of work, as dicts and lists: no log, no disk.

Beside `model.py`, which has the promises alone, this one knows attributes, groups, expiry, thresholds and properties.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import attrs

DEFAULTS: dict[str, Any] = {
    "description": "",
    "put_enabled": True,
    "get_enabled": True,
    "default_priority": 0,
    "default_persistence": True,
    "max_depth": 999_999_999,
    "max_message_length": 4_194_304,
    "delivery_sequence": "PRIORITY",
    "non_persistent_class": "NORMAL",
    "backout_threshold": 0,
    "backout_queue": "",
    "image_recoverable": "QMGR",
    "expiry_cap": None,
    "buffer_size": None,
}
DEAD_HEADER = 172  # bytes that the header of a dead letter has

Seen = tuple[Any, ...]  # a message as `Msg.seen` tells it
Move = tuple["Msg", str, bool]  # a message, the queue it goes to, whether as a dead letter


@attrs.define(eq=False)
class Msg:
    """A message. b"" as id: not known yet."""

    number: int
    body: bytes
    priority: int
    persistent: bool
    message_id: bytes
    correlation_id: bytes = bytes(24)
    group: tuple[bytes, int, bool] | None = None  # its id, its number in it, whether it is the last
    properties: tuple[tuple[str, Any], ...] = ()
    form: str = ""
    expires: int = 0  # by the queue manager's steady clock, microseconds; 0: never
    dead: tuple[tuple[int, str, str], ...] = ()  # each time: why it is a dead letter, where it was, its format before
    place: int = 0  # in the order of commits
    backouts: int = 0
    sure: int = 0  # the backout count that no crash can take back
    least: int = 0  # the lowest that may be found
    held: Hashable = None

    def copy(self) -> "Msg":
        said = self.number, self.body, self.priority, self.persistent, self.message_id, self.correlation_id, self.group
        told = self.properties, self.form, self.expires, self.dead, self.place
        return Msg(*said, *told, self.backouts, self.sure, self.least, self.held)

    def seen(self) -> Seen:
        group = self.group or (None, 0, False)
        return (
            self.body,
            self.priority,
            self.persistent,
            self.message_id,
            self.correlation_id,
            *group,
            dict(self.properties),
            self.form,
            self.dead,
            self.backouts,
        )

    def is_over(self, now: int) -> bool:
        return 0 < self.expires <= now


@attrs.define(eq=False)
class Unit:
    """A unit of work, or what is held for a client."""

    puts: list[tuple[str, Msg]] = attrs.field(factory=list)
    gets: list[tuple[str, Msg]] = attrs.field(factory=list)
    prepared: bool = False
    holds: bool = False  # for a client: a crash forgets it

    @property
    def size(self) -> int:
        return len(self.puts) + len(self.gets)


@attrs.define(eq=False)
class Queue:
    attributes: dict[str, Any]
    msgs: list[Msg] = attrs.field(factory=list)  # in any order: `place` tells
    history: list[bytes] = attrs.field(factory=list)  # persistent bodies, in the order of commit


@attrs.define(eq=False)
class FullModel:
    queues: dict[str, Queue] = attrs.field(factory=dict)
    aliases: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    dead_letter_queue: str = ""
    max_uncommitted: int = 10_000
    units: dict[Hashable, Unit] = attrs.field(factory=dict)
    places: int = 0
    now: int = 0  # the latest moment that the queue manager may have looked at

    def copy(self) -> "FullModel":
        made: dict[int, Msg] = {}

        def one(msg: Msg) -> Msg:
            if id(msg) not in made:
                made[id(msg)] = msg.copy()
            return made[id(msg)]

        return attrs.evolve(
            self,
            queues={
                name: Queue(dict(q.attributes), [one(m) for m in q.msgs], list(q.history))
                for name, q in self.queues.items()
            },
            aliases={name: dict(alias) for name, alias in self.aliases.items()},
            units={
                key: attrs.evolve(
                    unit, puts=[(q, one(m)) for q, m in unit.puts], gets=[(q, one(m)) for q, m in unit.gets]
                )
                for key, unit in self.units.items()
            },
        )

    # -- what there is

    def base(self, name: str) -> str | None:
        """The queue that a name stands for, if there is one."""
        target = self.aliases[name]["target"] if name in self.aliases else name
        return target if target in self.queues else None

    def order(self, queue: str) -> list[Msg]:
        """All that is on the queue, as it would be delivered."""
        there = self.queues[queue]
        if there.attributes["delivery_sequence"] == "FIFO":
            return sorted(there.msgs, key=lambda msg: msg.place)
        return sorted(there.msgs, key=lambda msg: (-msg.priority, msg.place))

    def ready(self, queue: str) -> Iterator[Msg]:
        """What can be got, in order."""
        return (msg for msg in self.order(queue) if msg.held is None and not msg.is_over(self.now))

    def find(self, queue: str, limit: int, match: Callable[[Msg], bool]) -> list[Msg]:
        found: list[Msg] = []
        for msg in self.ready(queue):
            if len(found) == limit:
                break
            if match(msg):
                found.append(msg)
        return found

    def find_in_order(self, queue: str, unit: Unit, limit: int, group: bytes | None, *, complete: bool) -> list[Msg]:
        """What a get in logical order takes."""
        mine = [msg for name, msg in unit.gets if name == queue]
        ready = list(self.ready(queue))
        last = mine[-1] if mine else None
        chosen: list[Msg] = []

        def is_whole(one: bytes) -> bool:
            members = [msg.group for msg in (*mine, *ready) if msg.group is not None and msg.group[0] == one]
            end = min((number for _, number, final in members if final), default=0)
            return end > 0 and {number for _, number, _ in members} >= set(range(1, end + 1))

        while len(chosen) < limit:
            within = last.group if last is not None and last.group is not None and not last.group[2] else None
            left = (msg for msg in ready if msg not in chosen)
            if within is not None and group in (None, within[0]):
                wanted = within[:2]
                found = next((m for m in left if m.group and (m.group[0], m.group[1] - 1) == wanted), None)
            else:
                found = next(
                    (
                        m
                        for m in left
                        if (group is None or (m.group and m.group[0] == group))
                        and (m.group is None or (m.group[1] == 1 and (not complete or is_whole(m.group[0]))))
                    ),
                    None,
                )
            if found is None:
                break
            chosen.append(found)
            last = found
        return chosen

    def depth(self, queue: str) -> tuple[int, int]:
        """The least and the most that the depth may be: who says when what is over is removed?"""
        waiting = sum(name == queue for unit in self.units.values() for name, _ in unit.puts)
        least = sum(1 for _ in self.ready(queue)) + waiting
        over = sum(1 for msg in self.queues[queue].msgs if msg.held is None and msg.is_over(self.now))
        return least, least + over

    def uncommitted(self, queue: str) -> int:
        return sum(name == queue for unit in self.units.values() for name, _ in [*unit.puts, *unit.gets])

    def in_doubt(self) -> set[Hashable]:
        return {key for key, unit in self.units.items() if unit.prepared}

    # -- changes

    def put(self, queue: str, msgs: Iterable[Msg], unit: Hashable = None) -> None:
        if unit is not None:
            self.units[unit].puts += [(queue, msg) for msg in msgs]
            return
        there = self.queues[queue]
        for msg in msgs:
            self.places += 1
            msg.place = self.places
            there.msgs.append(msg)
            if msg.persistent:
                there.history.append(msg.body)

    def get(self, queue: str, msgs: Iterable[Msg], unit: Hashable = None) -> None:
        for msg in msgs:
            if unit is None:
                self.queues[queue].msgs.remove(msg)
            else:
                msg.held = unit
                self.units[unit].gets.append((queue, msg))

    def move(self, queue: str, move: Move, unit: Hashable = None) -> None:
        """A message that was backed out too often goes to another queue."""
        msg, target, dead = move
        copy = self.moved(msg, queue, dead=dead)
        if unit is None:
            self.get(queue, [msg])
            self.put(target, [copy])
        else:
            self.put(target, [copy], unit)
            self.get(queue, [msg], unit)

    @staticmethod
    def moved(msg: Msg, queue: str, *, dead: bool, reason: int = 2362) -> Msg:
        """The message as it is put to the backout queue, or as a dead letter."""
        copy = attrs.evolve(msg, backouts=0, sure=0, least=0, held=None, place=0)
        if dead:
            copy.dead = (reason, queue, msg.form), *msg.dead
            copy.form = "MQDEAD"
        return copy

    def moves(self, queue: str, chosen: Callable[[], list[Msg]], depths: dict[str, int]) -> tuple[list[Move], set[int]]:
        """What a get that is asked for it moves away first, and the numbers of those that nobody takes.

        `chosen` is what the get would take; the messages are moved in this model. `depths` are the real ones.
        """
        made: list[Move] = []
        stays: set[int] = set()
        attributes = self.queues[queue].attributes
        while attributes["backout_threshold"] and attributes["get_enabled"]:
            often = [m for m in chosen() if m.backouts >= attributes["backout_threshold"] and m.number not in stays]
            if not often:
                break
            for msg in often:
                way = self.way_out(queue, msg, depths) if self.max_uncommitted >= 2 else None
                if way is None:
                    stays.add(msg.number)
                    continue
                depths[way[0]] += 1
                depths[queue] -= 1
                made.append((msg, *way))
                msg.held = "moved"
        for msg, _, _ in made:
            msg.held = None
        return made, stays

    def way_out(self, queue: str, msg: Msg, depths: dict[str, int]) -> tuple[str, bool] | None:
        """The queue that takes a message that was backed out too often, and whether as a dead letter."""
        for name, dead in ((self.queues[queue].attributes["backout_queue"], False), (self.dead_letter_queue, True)):
            target = self.base(name)
            size = len(msg.body) + DEAD_HEADER * (len(msg.dead) + dead)
            if target is not None and target != queue and self.why_not_put(name, size, 1, depths) == set():
                return target, dead
        return None

    def why_not_put(self, name: str, size: int, count: int, depths: dict[str, int]) -> set[int]:
        """The reason codes with which a put may be refused; none: it may not be."""
        target = self.base(name)
        if target is None:
            return {2082 if name in self.aliases else 2085}
        attributes = self.queues[target].attributes
        enabled = attributes["put_enabled"] and self.aliases.get(name, attributes)["put_enabled"]
        refused = set() if enabled else {2051}
        if size > attributes["max_message_length"]:
            refused.add(2030)
        if depths[target] + count > attributes["max_depth"]:
            refused.add(2053)
        return refused

    def begin(self, key: Hashable, *, holds: bool = False) -> None:
        self.units[key] = Unit(holds=holds)

    def commit(self, key: Hashable) -> None:
        ended = self.units.pop(key)
        for queue, msg in ended.gets:
            self.get(queue, [msg])
        for queue, msg in ended.puts:
            self.put(queue, [msg])

    def backout(self, key: Hashable, *, count: bool = True) -> None:
        for _, msg in self.units.pop(key).gets:
            msg.held = None
            if count:
                msg.backouts += 1
                msg.least = msg.backouts

    def forced(self) -> None:
        """Something was made durable, and so was all that came before it."""
        for queue in self.queues.values():
            for msg in queue.msgs:
                msg.sure = msg.backouts

    # -- ends

    def end(self, *, in_order: bool = True) -> None:
        """What is open is backed out; of what is not persistent NPMCLASS(HIGH) keeps what is on a queue in order."""
        for key in [key for key, unit in self.units.items() if not unit.prepared]:
            self.backout(key, count=not self.units[key].holds)
        for queue in self.queues.values():
            kept = in_order and queue.attributes["non_persistent_class"] == "HIGH"
            queue.msgs = [msg for msg in queue.msgs if msg.persistent or (kept and msg.held is None)]
        for unit in self.units.values():
            unit.puts = [(queue, msg) for queue, msg in unit.puts if msg.persistent]
            unit.gets = [(queue, msg) for queue, msg in unit.gets if msg.persistent]

    def crash(self) -> None:
        """Nobody knows whether gets and backouts that nothing waited for had reached the log."""
        self.end(in_order=False)
        for queue in self.queues.values():
            for msg in queue.msgs:
                msg.least = msg.sure

    def recreate(self, queue: str) -> None:
        """The queue was built again from the log: only what is not persistent is gone, also of units of work."""
        there = self.queues[queue]
        there.msgs = [msg for msg in there.msgs if msg.persistent]
        for unit in self.units.values():
            unit.gets = [(name, msg) for name, msg in unit.gets if name != queue or msg.persistent]

    # -- comparing

    def differs(self, found: "Found", now: int, *, durable: bool = False) -> str:
        """How that is not what this model says; "" if it is, and what the model was unsure of it takes from there.

        `now`: by the steady clock of the one that was looked at. `durable`: what is found no crash takes back.
        """
        if found.in_doubt != self.in_doubt():
            return f"in doubt are {found.in_doubt}, not {self.in_doubt()}"
        if found.aliases != self.aliases:
            return f"aliases are {found.aliases}, not {self.aliases}"
        mine = (self.dead_letter_queue, self.max_uncommitted)
        if found.qmgr != mine:
            return f"the queue manager has {found.qmgr}, not {mine}"
        if found.queues.keys() != self.queues.keys():
            return f"queues are {sorted(found.queues)}, not {sorted(self.queues)}"
        taken: list[tuple[Msg, Seen]] = []
        lost: list[tuple[str, Msg]] = []
        for name, (attributes, depth, seen) in found.queues.items():
            queue = self.queues[name]
            if attributes != queue.attributes:
                return f"{name} has {attributes}, not {queue.attributes}"
            rest = list(seen)
            for msg in self.order(name):
                if msg.held is not None or msg.is_over(now):
                    continue
                if rest and msg.least <= rest[0][-1] <= msg.backouts and _same(msg, rest[0]):
                    taken.append((msg, rest.pop(0)))
                elif msg.is_over(self.now):  # it was over before the clock went back: it may be gone
                    lost.append((name, msg))
                else:
                    return f"{name}: expected {_short(msg.seen())}, least {msg.least}; found {_short(*rest[:1])}"
            if rest:
                return f"{name}: found {_short(*rest)} too many"
            waiting = sum(q == name for unit in self.units.values() for q, _ in unit.puts)
            over = sum(1 for msg in queue.msgs if msg.held is None and msg.is_over(now))
            if not 0 <= depth - len(seen) - waiting <= over:
                return f"{name} has a depth of {depth}, with {len(seen)} there and {waiting} put, {over} are over"
        for msg, one in taken:
            msg.least = msg.backouts = one[-1]
            msg.sure = msg.backouts if durable else min(msg.sure, msg.backouts)
            msg.message_id = one[3]
        for name, msg in lost:
            self.queues[name].msgs.remove(msg)
        return ""


def _same(msg: Msg, seen: Seen) -> bool:
    mine = list(msg.seen())
    mine[3] = msg.message_id or seen[3]
    mine[-1] = seen[-1]
    return mine == list(seen)


def _short(*seen: Seen) -> list[Seen]:
    return [(one[0][:12], len(one[0]), *one[1:]) for one in seen]


@attrs.define
class Found:
    """What a look at everything shows."""

    queues: dict[str, tuple[dict[str, Any], int, list[Seen]]]  # attributes, depth, messages in order
    aliases: dict[str, dict[str, Any]]
    qmgr: tuple[str, int]
    in_doubt: set[Hashable]
