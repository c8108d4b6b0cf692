"""The queue manager as dicts and lists: what a caller may see, with no log and no disk."""

from collections.abc import Callable, Hashable

import attrs

Seen = tuple[bytes, int, bytes, bytes, int]  # body, priority, message id, correlation id, backout count
Observed = dict[str, tuple[str, list[Seen]]]  # each queue's description, and its messages in order


@attrs.define
class Msg:
    """A message. b"" as id: not known yet. The gets that a crash cuts off may or may not count as backed out."""

    body: bytes
    priority: int
    persistent: bool
    message_id: bytes
    correlation_id: bytes = bytes(24)
    backouts: int = 0
    sure: int = 0  # the backout count that no crash can take back
    least: int = 0  # after a crash: the lowest that may be found; else the same as `backouts`
    held: Hashable = None  # the unit of work that put or got it and has not ended

    def copy(self) -> "Msg":
        return Msg(
            self.body,
            self.priority,
            self.persistent,
            self.message_id,
            self.correlation_id,
            self.backouts,
            self.sure,
            self.least,
            self.held,
        )

    def seen(self) -> Seen:
        return (self.body, self.priority, self.message_id, self.correlation_id, self.backouts)


@attrs.define
class Unit:
    """A unit of work: its puts are in no queue yet, its gets are still in theirs, held."""

    puts: list[tuple[str, Msg]] = attrs.field(factory=list)
    gets: list[tuple[str, Msg]] = attrs.field(factory=list)
    prepared: bool = False


@attrs.define
class Model:
    queues: dict[str, list[Msg]] = attrs.field(factory=dict)
    units: dict[Hashable, Unit] = attrs.field(factory=dict)
    descriptions: dict[str, str] = attrs.field(factory=dict)
    history: dict[str, list[bytes]] = attrs.field(factory=dict)  # what a replay tells: bodies

    def copy(self) -> "Model":
        made: dict[int, Msg] = {}  # a message that is in a queue and in a unit of work is one message
        queues: dict[str, list[Msg]] = {}
        for queue, msgs in self.queues.items():
            queues[queue] = copies = [msg.copy() for msg in msgs]
            if self.units:
                made.update(zip(map(id, msgs), copies, strict=True))

        def one(msg: Msg) -> Msg:
            if id(msg) not in made:
                made[id(msg)] = msg.copy()
            return made[id(msg)]

        return Model(
            queues,
            {
                key: Unit([(q, one(m)) for q, m in unit.puts], [(q, one(m)) for q, m in unit.gets], unit.prepared)
                for key, unit in self.units.items()
            },
            dict(self.descriptions),
            {queue: list(bodies) for queue, bodies in self.history.items()},
        )

    def begin(self, unit: Hashable) -> None:
        self.units[unit] = Unit()

    def define(self, queue: str, description: str = "") -> None:
        self.queues.setdefault(queue, [])
        self.history.setdefault(queue, [])
        self.descriptions[queue] = description

    def delete(self, queue: str) -> None:
        del self.queues[queue], self.descriptions[queue], self.history[queue]

    def put(self, queue: str, msgs: list[Msg], unit: Hashable = None) -> None:
        if unit is not None:
            self.units[unit].puts += [(queue, msg) for msg in msgs]
            return
        there = self.queues[queue]
        for msg in msgs:  # priority first, then the order of commit
            place = next((n for n, other in enumerate(there) if other.priority < msg.priority), len(there))
            there.insert(place, msg)
        self.history[queue] += [msg.body for msg in msgs if msg.persistent]

    def find(self, queue: str, limit: int = 1, match: Callable[[Msg], bool] = lambda msg: True) -> list[Msg]:
        """The messages that a get takes."""
        return [msg for msg in self.queues[queue] if msg.held is None and match(msg)][:limit]

    def get(self, queue: str, msgs: list[Msg], unit: Hashable = None) -> None:
        for msg in msgs:
            if unit is None:
                self.queues[queue] = [other for other in self.queues[queue] if other is not msg]
            else:
                msg.held = unit
                self.units[unit].gets.append((queue, msg))

    def commit(self, unit: Hashable) -> None:
        ended = self.units.pop(unit)
        for queue, msg in ended.gets:
            self.get(queue, [msg])
        for queue, msg in ended.puts:
            self.put(queue, [msg])

    def backout(self, unit: Hashable) -> None:
        for _, msg in self.units.pop(unit).gets:
            msg.held = None
            msg.backouts += 1
            msg.least = msg.backouts

    def forced(self) -> None:
        """Something was made durable, and so was all that came before it."""
        for msgs in self.queues.values():
            for msg in msgs:
                msg.sure = msg.backouts

    def end(self) -> None:
        """The queue manager ends in order: what is open is backed out, what is not persistent goes."""
        for name in [name for name, unit in self.units.items() if not unit.prepared]:
            self.backout(name)
        for queue, msgs in self.queues.items():
            self.queues[queue] = [msg for msg in msgs if msg.persistent]
        for unit in self.units.values():
            unit.puts = [(queue, msg) for queue, msg in unit.puts if msg.persistent]
            unit.gets = [(queue, msg) for queue, msg in unit.gets if msg.persistent]

    def recreate(self, queue: str) -> None:
        """The queue was built again from the log: only what is not persistent is gone, also of units of work."""
        self.queues[queue] = [msg for msg in self.queues[queue] if msg.persistent]
        for unit in self.units.values():
            unit.gets = [(name, msg) for name, msg in unit.gets if name != queue or msg.persistent]

    def crash(self) -> None:
        """The same, but nobody knows whether the gets and backouts that nothing waited for had reached the log."""
        self.end()
        for msgs in self.queues.values():
            for msg in msgs:
                msg.least = msg.sure

    def depths(self) -> dict[str, int]:
        """What can be got from each queue, and what is put and not committed."""
        found = {queue: len(self.find(queue, 1 << 60)) for queue in self.queues}
        for unit in self.units.values():
            for queue, _ in unit.puts:
                found[queue] += 1
        return found

    def in_doubt(self) -> set[Hashable]:
        return {name for name, unit in self.units.items() if unit.prepared}

    def seen(self) -> Observed:
        """What a browse of every queue shows."""
        return {
            queue: (self.descriptions[queue], [msg.seen() for msg in self.find(queue, 1 << 60)])
            for queue in self.queues
        }

    def agrees(self, seen: Observed, in_doubt: set[Hashable]) -> bool:
        """Whether that is what this model says; what it is unsure of it takes from there."""
        if in_doubt != self.in_doubt() or seen.keys() != self.queues.keys():
            return False
        for queue, (description, found) in seen.items():
            mine = self.find(queue, 1 << 60)
            if len(mine) != len(found) or description != self.descriptions[queue]:
                return False
            for msg, other in zip(mine, found, strict=True):
                if msg.least <= other[4] <= msg.backouts:
                    msg.sure = msg.least = msg.backouts = other[4]
                msg.message_id = msg.message_id or other[2]
                if msg.seen() != other:
                    return False
        return True
