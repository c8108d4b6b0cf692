"""SimDisk: a disk in memory that forgets at a crash what was not synced, and fails when it is told to.

Operations: those of `logger.disk.Disk`. Goals: every state that the fault model allows after a crash at any call can
be made, the same one for the same seed; thousands of lives a minute. Plan: a file is its durable bytes, the bytes that
readers see, and the list of writes between the two, which is looked at sector by sector only in a crash. What a crash
or a snapshot leaves as it was is shared with the new disk until one of the two changes it. A directory is its durable
names and its live ones; the name changes between them are one list for the whole disk, in order.

What a sync promises is what `logger/disk.py` says: writes to *that* file *before it began*; names by `sync_dir` only,
and a move between two directories once both are synced.
"""

import errno
import os
import posixpath
import random
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache

import attrs

from logger.disk import Buffer, Locks
from logger.errors import LogInUse
from tests.sim.loss import KEEP_ALL, Loss, mixed

SECTOR = 512
DIRECT = 4096  # what direct writes and reads are aligned to
TOTAL = 1 << 40  # bytes, when no capacity is set

EFFECTS = frozenset({"create", "write", "sync", "truncate", "rename", "unlink", "mkdir", "rmdir", "sync_dir", "lock"})
OPENS = frozenset(
    {"open", "create", "list", "sync_dir", "lock", "locked_by"}
)  # what takes a descriptor, if for a moment

Names = list[str]  # in SimDisk `list` is the method


class SimCrash(BaseException):
    """The simulated process died here. Not an Exception: nothing may catch it and go on."""


Write = tuple[int, bytes | None]  # (offset, data) or (size, None): a truncate


@attrs.define(eq=False)
class FileNode:
    """One file: what a crash can't take, what readers see, and the writes in between."""

    durable: bytearray
    live: bytearray
    pending: list[Write] = attrs.field(factory=list)
    doomed: set[int] = attrs.field(factory=set)  # sectors of a sync that failed: no later sync makes them durable
    durable_lent: bool = False  # these bytes are also another's, and copied before they change
    live_lent: bool = False

    @classmethod
    def holding(cls, data: bytearray) -> "FileNode":
        """A file that is durable as it is, with bytes that may be another's."""
        return cls(data, data, durable_lent=True, live_lent=True)

    def own_durable(self) -> bytearray:
        """The durable bytes, to be changed."""
        if self.durable_lent:
            self.durable, self.durable_lent = bytearray(self.durable), False
        return self.durable

    def own_live(self) -> bytearray:
        """The bytes that readers see, to be changed."""
        if self.live_lent:
            self.live, self.live_lent = bytearray(self.live), False
        return self.live

    def lend_durable(self) -> bytearray:
        self.durable_lent = True
        return self.durable

    def lend_live(self) -> bytearray:
        self.live_lent = True
        return self.live


@attrs.define(eq=False)
class DirNode:
    """One directory: names that a crash can't take, and names as they are now."""

    durable: dict[str, "Node"] = attrs.field(factory=dict)
    live: dict[str, "Node"] = attrs.field(factory=dict)


Node = FileNode | DirNode


@attrs.define(eq=False)
class NameChange:
    """A create, rename or removal that some directory has not synced yet; it happens wholly or not at all."""

    node: Node
    gone: tuple[DirNode, str] | None  # the name it loses
    come: tuple[DirNode, str] | None  # the name it gets
    waits_for: list[DirNode]

    def keys(self) -> set[tuple[int, str]]:
        """What it touches: names, and the node itself."""
        found = {(id(place[0]), place[1]) for place in (self.gone, self.come) if place is not None}
        found.add((id(self.node), ""))
        return found


@attrs.define(eq=False)
class Fault:
    """An error that calls of some kind meet: the `nth`, or that one and all that follow."""

    kinds: tuple[str, ...]
    error: int
    nth: int = 1
    once: bool = True
    where: Callable[[str], bool] | None = None
    part: float = 0.0  # of a write: how much of it reaches the cache before the error
    seen: int = 0
    fired: int = 0

    def strikes(self, kind: str, path: str) -> bool:
        """Count this call; whether it fails."""
        if kind not in self.kinds or (self.where is not None and not self.where(path)):
            return False
        self.seen += 1
        if self.seen < self.nth or (self.once and self.fired):
            return False
        self.fired += 1
        return True


class SimFile:
    """An open file. It belongs to the process that opened it and dies with it."""

    __slots__ = ("begun", "closed", "direct", "disk", "node", "path", "writable")

    def __init__(self, disk: "SimDisk", node: FileNode, path: str, *, writable: bool, direct: bool) -> None:
        self.disk = disk
        self.node = node
        self.path = path
        self.writable = writable
        self.direct = direct
        self.closed = False
        self.begun: tuple[int, Buffer, bytes] | None = None  # a write: its offset, where its bytes lie, and they

    def _check(self) -> None:
        if self.closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)

    def read(self, offset: int, size: int) -> bytes:
        self.disk._step("read", self.path)
        self._check()
        if self.direct and (offset % DIRECT or size % DIRECT):
            raise OSError(errno.EINVAL, "direct read that is not aligned", self.path)
        return bytes(memoryview(self.node.live)[offset : offset + size])

    def write(self, offset: int, data: Buffer) -> None:
        disk = self.disk
        size = len(data)
        assert self.begun is None, "what was begun is to be ended first"
        plan = disk._step("write", self.path, size)
        self._check()
        if not self.writable:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        if self.direct and (offset % DIRECT or size % DIRECT or not isinstance(data, memoryview)):
            raise OSError(errno.EINVAL, "direct write that is not aligned", self.path)
        node = self.node
        if plan is not None:
            size = plan[0]
        with disk.gate:
            grown = offset + size - len(node.live)
            if grown > 0 and disk.capacity is not None and disk.used + grown > disk.capacity:
                room = max(0, disk.capacity - disk.used)
                size = max(0, (len(node.live) + room - offset) // SECTOR * SECTOR)
                plan = (size, OSError(disk.says_full, os.strerror(disk.says_full), self.path))
            if size:
                kept = bytes(data if size == len(data) else memoryview(data)[:size])
                node.pending.append((offset, kept))
                disk.used += _put(node.own_live(), offset, kept)
        if plan is not None:
            raise plan[1]

    def _counts(self) -> bool:
        """Does a sync that is under way have its effect?"""
        disk = self.disk
        self._check()
        if disk.during_sync is not None:
            disk.during_sync(self.path)
        return disk.ignore_sync is None or not disk.ignore_sync("sync", self.path)

    def write_durably(self, offset: int, data: Buffer, *, may_poll: bool = False) -> None:
        """A write, and a sync that covers nothing but that."""
        begun, self.begun = self.begun, None
        if begun is not None:
            assert (offset, bytes(data)) == (begun[0], begun[2]), "the write that was begun is to be ended first"
            assert data is begun[1], "it lies elsewhere by now"
            assert may_poll, "another call would leave it under way"
        self.write(offset, data)
        disk, node = self.disk, self.node
        written = node.pending[-1]
        try:
            disk._step("sync", self.path)
        except OSError:  # as above all of it
            node.doomed.update(_sectors(offset, len(data)))
            node.pending.remove(written)
            raise
        if not self._counts():
            return
        with disk.gate:
            node.pending = [part for one in node.pending if one is not written for part in _beside(one, written)]
            _put(node.own_durable(), offset, bytes(data))
            node.doomed.difference_update(_sectors(offset, len(data)))

    def begin_durably(self, offset: int, data: Buffer) -> bool:
        """It may be there after a crash, or a part of it. When it fails, the call that follows does."""
        self._check()
        assert self.begun is None, "one at a time"
        if not self.disk.begins():
            return False
        assert isinstance(data, memoryview), "the disk reads it later"
        self.begun = offset, data, bytes(data)
        with self.disk.gate:
            kept = bytes(data)
            self.node.pending.append((offset, kept))
            self.disk.used += _put(self.node.own_live(), offset, kept)
        return True

    def sync(self) -> None:
        disk = self.disk
        node = self.node
        count = len(node.pending)  # later writes are none of this sync's
        try:
            disk._step("sync", self.path)
        except OSError:  # as Linux does: the pages count as clean from here on, whatever reached the disk
            for offset, data in node.pending[:count]:
                if data is not None:
                    node.doomed.update(_sectors(offset, len(data)))
            del node.pending[:count]
            raise
        if not self._counts():
            return
        with disk.gate:
            for offset, data in node.pending[:count]:
                if data is None:
                    _cut(node.own_durable(), offset)
                    continue
                _put(node.own_durable(), offset, data)
                if node.doomed:
                    node.doomed.difference_update(_sectors(offset, len(data)))
            del node.pending[:count]
            if not node.pending and not node.doomed:
                node.durable, node.durable_lent = node.lend_live(), True

    def truncate(self, size: int) -> None:
        disk = self.disk
        assert self.begun is None, "what was begun is to be ended first"
        disk._step("truncate", self.path)
        self._check()
        if not self.writable:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.path)
        with disk.gate:
            grown = size - len(self.node.live)
            if grown > 0 and disk.capacity is not None and disk.used + grown > disk.capacity:
                raise OSError(disk.says_full, os.strerror(disk.says_full), self.path)
            self.node.pending.append((size, None))
            _cut(self.node.own_live(), size)
            disk.used += grown

    def still_open(self) -> bool:
        return True

    def size(self) -> int:
        self.disk._step("size", self.path)
        self._check()
        return len(self.node.live)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True  # as close(2): the descriptor is gone even when it complains
        self.disk.open_files -= 1
        self.disk._step("close", self.path)


class SimLock:
    """Ownership of one lock file."""

    def __init__(self, disk: "SimDisk", path: str) -> None:
        self.disk = disk
        self.path = path
        self.directory = posixpath.dirname(path)
        self._directory_node, _ = disk._parent(path)

    def write(self, data: bytes) -> None:
        file = self.disk.open(self.path)
        try:
            file.write(0, data)
        finally:
            file.close()

    def in_place(self) -> bool:
        return self.disk._find(self.directory) is self._directory_node

    def release(self) -> None:
        self.disk.locks.pop(self.path, None)


class SimDisk:
    """A Disk in memory. `crash()` gives the disk that the next process finds."""

    def __init__(self, seed: int = 0, *, capacity: int | None = None) -> None:
        self.seed = seed
        self.capacity = capacity  # bytes of all files together; may be changed at any time
        self.says_full = errno.ENOSPC  # or EDQUOT, where it is a quota that is used up
        self.max_open: int | None = None  # descriptors; beyond it EMFILE
        self.used = 0
        self.open_files = 0
        self.root = DirNode()
        self.changes: list[NameChange] = []
        self.locks: dict[str, str] = {}
        self.faults: list[Fault] = []
        self.ignore_sync: Callable[[str, str], bool] | None = None  # (kind, path): that sync does nothing
        self.during_sync: Callable[[str], None] | None = None  # called between a sync's begin and its end
        self.before_effect: Callable[[str, str], None] | None = None  # (kind, path): look at every state on the way
        self.fork_callbacks: list[Callable[[], None]] = []
        self.dead = False
        self.generation = 0  # crashes before this disk
        self.calls = 0
        self.begins: Callable[[], bool] = lambda: True  # is a write begun when it may be?
        self.effects = 0  # calls that change something: the moments at which a crash makes a difference
        self.counts: dict[str, int] = {}
        self.trace: list[tuple[str, str]] = []  # the effects, in order
        self._crash_at = 0
        self._crash_part = 0.0
        self._rng = random.Random(f"disk {seed}")
        self.gate = threading.RLock()  # so that `snapshot` may be called while threads write

    # -- the Disk protocol ---------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, direct: bool = False) -> SimFile:
        self._step("create" if create else "open", path)
        parent, name = self._parent(path)
        node = parent.live.get(name)
        if create:
            if node is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            node = FileNode(bytearray(), bytearray())
            self._change(NameChange(node, None, (parent, name), [parent]))
        return self._opened(node, path, writable=True, direct=direct)

    def open_read(self, path: str) -> SimFile:
        self._step("open", path)
        parent, name = self._parent(path)
        return self._opened(parent.live.get(name), path, writable=False, direct=False)

    def forget(self, path: str) -> None:
        """Of sectors whose sync has failed the disk has what it had before, unless they were written again."""
        self._step("open", path)
        node = self._file(path)
        with self.gate:
            dirty = {sector for at, data in node.pending if data is not None for sector in _sectors(at, len(data))}
            for sector in node.doomed - dirty:
                start = sector * SECTOR
                kept = bytes(node.durable[start : start + SECTOR])
                _put(node.own_live(), start, kept.ljust(len(node.live[start : start + SECTOR]), b"\0"))
            node.doomed &= dirty

    def exists(self, path: str) -> bool:
        self._step("exists", path)
        return self._find(path) is not None

    def list(self, path: str) -> Names:
        self._step("list", path)
        node = self._find(path)
        if node is None:
            return []
        if isinstance(node, FileNode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return sorted(node.live)

    def rename(self, old: str, new: str) -> None:
        self._step("rename", old)
        parent, name = self._parent(old)
        node = parent.live.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        target, new_name = self._parent(new)
        there = target.live.get(new_name)
        if there is node:
            return
        if isinstance(there, DirNode):
            if isinstance(node, FileNode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), new)
            if there.live:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), new)
        if isinstance(there, FileNode):
            if isinstance(node, DirNode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), new)
            self.used -= len(there.live)
        waits = [parent] if target is parent else [parent, target]
        self._change(NameChange(node, (parent, name), (target, new_name), waits))

    def unlink(self, path: str) -> None:
        self._step("unlink", path)
        parent, name = self._parent(path)
        node = parent.live.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, DirNode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self.used -= len(node.live)
        self._change(NameChange(node, (parent, name), None, [parent]))

    def mkdir(self, path: str) -> None:
        self._step("mkdir", path)
        parent, name = self._parent(path)
        if name not in parent.live:
            self._change(NameChange(DirNode(), None, (parent, name), [parent]))
        elif isinstance(parent.live[name], FileNode):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)

    def rmdir(self, path: str) -> None:
        self._step("rmdir", path)
        parent, name = self._parent(path)
        node = parent.live.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, FileNode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if node.live:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self._change(NameChange(node, (parent, name), None, [parent]))

    def sync_dir(self, path: str) -> None:
        node = self._find(path)
        with self.gate:
            before = list(self.changes)
        self._step("sync_dir", path)
        if not isinstance(node, DirNode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if self.ignore_sync is not None and self.ignore_sync("sync_dir", path):
            return
        with self.gate:
            for change in before:
                if node in change.waits_for:
                    change.waits_for.remove(node)
            self._settle()

    def lock(self, path: str, holder: str, held: Locks | None = None) -> SimLock:
        self._step("lock", path)
        owner = self.locks.get(path)
        if owner is not None:
            raise LogInUse(f"{path} is held by {owner}", holder=owner)
        lock = SimLock(self, path)
        if held is not None:
            held.append(lock)
        parent, name = self._parent(path)
        node = parent.live.get(name)
        if node is None:
            node = FileNode(bytearray(), bytearray())
            self._change(NameChange(node, None, (parent, name), [parent]))
        if isinstance(node, DirNode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        text = holder.encode() + b"\n"
        node.pending += [(0, None), (0, text)]
        self.used += len(text) - len(node.live)
        node.own_live()[:] = text
        self.locks[path] = holder
        return lock

    def locked_by(self, path: str) -> str | None:
        self._step("locked_by", path)
        return self.locks.get(path)

    def free_bytes(self, path: str) -> tuple[int, int]:
        self._step("free_bytes", path)
        total = TOTAL if self.capacity is None else self.capacity
        return max(0, total - self.used), total

    def real_path(self, path: str) -> str:
        return posixpath.normpath(path)

    def same_file_system(self, one: str, other: str) -> bool:
        return True

    def buffer(self, size: int) -> memoryview:
        return memoryview(bytearray(size))

    def entropy(self, size: int) -> bytes:
        return self._rng.randbytes(size)

    def syncs_at_once(self) -> bool:
        return False  # its calls have an order

    def max_descriptors(self) -> int:
        return 1024 if self.max_open is None else self.max_open

    def process(self) -> str:
        return "sim"

    def foreign_owner(self, path: str) -> str:
        return ""

    def on_fork(self, callback: Callable[[], None]) -> None:
        self.fork_callbacks.append(callback)

    # -- crashes and faults --------------------------------------------------------------------------------------

    def crash_after(self, effects: int, part: float = 0.0) -> None:
        """Die at the n-th effect from here (1 is the next): before it, or with `part` of a write in the cache."""
        self._crash_at = self.effects + effects
        self._crash_part = part

    @property
    def crashes(self) -> bool:
        """Is it going to die?"""
        return self._crash_at != 0

    def no_crash(self) -> None:
        """Take `crash_after` back."""
        self._crash_at = 0

    def fail(
        self,
        kind: str | tuple[str, ...],
        error: int,
        *,
        nth: int = 1,
        once: bool = True,
        where: Callable[[str], bool] | None = None,
        part: float = 0.0,
    ) -> Fault:
        """Let the `nth` call of a kind from here fail with `error`, for good unless `once`; `heal` ends it."""
        kinds = (kind,) if isinstance(kind, str) else kind
        fault = Fault(kinds, error, nth=nth, once=once, where=where, part=part)
        self.faults.append(fault)
        return fault

    def heal(self) -> None:
        """No more faults."""
        self.faults.clear()

    def crash(self, loss: Loss | int = KEEP_ALL) -> "SimDisk":
        """The disk as the next process finds it; this one is dead. May be called again, for another loss."""
        self.dead = True
        return self.snapshot(loss)

    def snapshot(self, loss: Loss | int = KEEP_ALL) -> "SimDisk":
        """What `crash` would give, with this disk going on."""
        if isinstance(loss, int):
            loss = mixed(loss)
        rng = random.Random(f"crash {loss.seed}")
        after = SimDisk(self.seed, capacity=self.capacity)
        after.begins = self.begins
        after.generation = self.generation + 1
        after._rng = random.Random(f"disk {self.seed} {after.generation} {loss.seed}")
        after.max_open = self.max_open
        after.says_full = self.says_full
        after.ignore_sync = self.ignore_sync

        def copy(node: DirNode) -> DirNode:
            found: dict[str, Node] = {}
            for name, child in sorted(names[id(node)].items()):
                if isinstance(child, DirNode):
                    found[name] = copy(child)
                else:
                    data = _after(child, loss, rng)
                    after.used += len(data)
                    found[name] = FileNode.holding(data)
            return DirNode(found, dict(found))

        with self.gate:
            if loss.alive:
                after.root, after.changes = _twins(self.root, self.changes)
                after.used = self.used
                return after
            names = self._names_after(loss, rng)
            after.root = copy(self.root)
        return after

    # -- for tests: past every step and fault, durable at once ---------------------------------------------------

    def files(self, below: str = "/") -> Names:
        """The paths of all files, sorted."""

        def walk(node: DirNode, path: str) -> Iterator[str]:
            for name, child in sorted(node.live.items()):
                if isinstance(child, DirNode):
                    yield from walk(child, f"{path}/{name}")
                else:
                    yield f"{path}/{name}"

        return [path for path in walk(self.root, "") if path.startswith(below)]

    def peek(self, path: str) -> bytes:
        """The bytes that readers see."""
        return bytes(self._file(path).live)

    def poke(self, path: str, data: bytes) -> None:
        """Put a file there, durably."""
        parent, name = self._parent(path)
        old = parent.live.get(name)
        self.used += len(data) - (len(old.live) if isinstance(old, FileNode) else 0)
        parent.live[name] = parent.durable[name] = FileNode.holding(bytearray(data))

    def remove(self, path: str) -> None:
        """Take a file away, durably."""
        self.used -= len(self._file(path).live)
        parent, name = self._parent(path)
        del parent.live[name]
        parent.durable.pop(name, None)

    def unsynced(self) -> Names:
        """The paths of files with writes that a crash may take."""
        return [path for path in self.files() if self._file(path).pending or self._file(path).doomed]

    def unsynced_sectors(self, path: str) -> int:
        """How many sectors of a file a crash may take."""
        return len(_versions(self._file(path))[0])

    def could_lose(self) -> bool:
        """Whether a crash now could lose anything at all."""
        return bool(self.changes) or bool(self.unsynced())

    # -- inside --------------------------------------------------------------------------------------------------

    def _step(self, kind: str, path: str, size: int = 0) -> tuple[int, BaseException] | None:
        """Every call passes here. None: go on; or, for a write: do so many bytes of it, then raise that."""
        if self.dead:
            raise SimCrash(f"{kind} {path}: this process is dead")
        self.calls += 1
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if kind in EFFECTS:
            self.effects += 1
            self.trace.append((kind, path))
            if self.before_effect is not None:
                self.before_effect(kind, path)
            if self.effects == self._crash_at:
                self.dead = True
                crash = SimCrash(f"{kind} {path}: effect {self.effects}")
                if kind == "write" and self._crash_part > 0:
                    return min(size, int(size * self._crash_part + SECTOR - 1) // SECTOR * SECTOR), crash
                raise crash
        if kind in OPENS and self.max_open is not None and self.open_files >= self.max_open:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        for fault in self.faults:
            if fault.strikes(kind, path):
                error = OSError(fault.error, os.strerror(fault.error), path)
                if kind == "write" and fault.part > 0:
                    return int(size * fault.part) // SECTOR * SECTOR, error
                raise error
        return None

    def _find(self, path: str) -> Node | None:
        node: Node | None = self.root
        for name in _names(path):
            if not isinstance(node, DirNode):
                return None
            node = node.live.get(name)
        return node

    def _file(self, path: str) -> FileNode:
        node = self._find(path)
        if not isinstance(node, FileNode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _parent(self, path: str) -> tuple[DirNode, str]:
        if not path.startswith("/"):
            raise ValueError(f"{path!r} is not an absolute path")
        above, _, name = path.rpartition("/")
        node = self._find(above)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, FileNode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node, name

    def _opened(self, node: Node | None, path: str, *, writable: bool, direct: bool) -> SimFile:
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, DirNode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self.open_files += 1
        return SimFile(self, node, path, writable=writable, direct=direct)

    def _change(self, change: NameChange) -> None:
        with self.gate:
            if change.gone is not None:
                del change.gone[0].live[change.gone[1]]
            if change.come is not None:
                change.come[0].live[change.come[1]] = change.node
            self.changes.append(change)

    def _settle(self) -> None:
        """Write synced name changes into the durable names, unless an earlier one that touches the same still waits."""
        waiting: list[NameChange] = []
        touched: set[tuple[int, str]] = set()
        for change in self.changes:
            keys = change.keys()
            if change.waits_for or keys & touched:
                waiting.append(change)
                touched |= keys
                continue
            if change.gone is not None and change.gone[0].durable.get(change.gone[1]) is change.node:
                del change.gone[0].durable[change.gone[1]]
            if change.come is not None:
                change.come[0].durable[change.come[1]] = change.node
        self.changes = waiting

    def _names_after(self, loss: Loss, rng: random.Random) -> dict[int, dict[str, Node]]:
        """Each directory's names after a crash, by the directory's id."""
        names: dict[int, dict[str, Node]] = {}
        place: dict[int, tuple[dict[str, Node], str]] = {}

        def walk(node: DirNode) -> None:
            mine = names[id(node)] = dict(node.durable)
            for name, child in node.durable.items():
                place[id(child)] = (mine, name)
                if isinstance(child, DirNode):
                    walk(child)

        walk(self.root)
        for change in self.changes:
            for node in (change.node, *(spot[0] for spot in (change.gone, change.come) if spot is not None)):
                if isinstance(node, DirNode) and id(node) not in names:
                    walk(node)
        chance = rng.choice((0.0, 0.2, 0.5, 0.8, 1.0))
        for change in self.changes:
            if change.waits_for and not loss.keeps_name(rng, chance):
                continue
            # A node has one name: a rename that is kept takes it from wherever it is, also when an earlier one is lost.
            spot = place.pop(id(change.node), None)
            if spot is not None and spot[0].get(spot[1]) is change.node:
                del spot[0][spot[1]]
            if change.come is not None:
                mine = names[id(change.come[0])]
                mine[change.come[1]] = change.node
                place[id(change.node)] = (mine, change.come[1])
        return names


@lru_cache(maxsize=1000)
def _names(path: str) -> tuple[str, ...]:
    """The names that lead to a file."""
    return tuple(name for name in path.split("/") if name)


def _put(content: bytearray, offset: int, data: bytes) -> int:
    """Write `data` into `content`, with zeros before it where it is short; return by how much it grew."""
    size = len(content)
    if offset > size:
        content.extend(bytes(offset - size))
    content[offset : offset + len(data)] = data
    return len(content) - size


def _cut(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _beside(write: Write, later: Write) -> list[Write]:
    """What is left to be made durable of a write when a later one, which may lie over it, is."""
    (offset, data), (start, over) = write, later
    if data is None or over is None:
        return [write]
    end = start + len(over)
    left = (offset, data[: max(0, start - offset)]), (max(offset, end), data[max(0, end - offset) :])
    return [(at, part) for at, part in left if part]


def _sectors(offset: int, size: int) -> range:
    return range(offset // SECTOR, -(-(offset + size) // SECTOR))


def _twins(root: DirNode, changes: list[NameChange]) -> tuple[DirNode, list[NameChange]]:
    """The same names, files and bytes once more, with all that a crash may still take."""
    made: dict[int, Node] = {}

    def directory(node: DirNode) -> DirNode:
        twin = made.get(id(node))
        if not isinstance(twin, DirNode):
            twin = made[id(node)] = DirNode()
            twin.durable.update((name, any_node(child)) for name, child in node.durable.items())
            twin.live.update((name, any_node(child)) for name, child in node.live.items())
        return twin

    def any_node(node: Node) -> Node:
        if isinstance(node, DirNode):
            return directory(node)
        if id(node) not in made:
            made[id(node)] = FileNode(
                node.lend_durable(), node.lend_live(), list(node.pending), set(node.doomed), True, True
            )
        return made[id(node)]

    def place(spot: tuple[DirNode, str] | None) -> tuple[DirNode, str] | None:
        return None if spot is None else (directory(spot[0]), spot[1])

    return directory(root), [
        NameChange(any_node(one.node), place(one.gone), place(one.come), [directory(node) for node in one.waits_for])
        for one in changes
    ]


def _versions(node: FileNode) -> tuple[dict[int, list[bytes]], set[int], list[int]]:
    """Of one file since its last sync: what each sector held in turn, which ones were written, the sizes it had."""
    content = bytearray(node.durable)
    versions: dict[int, list[bytes]] = {}
    written = set(node.doomed)
    sizes = [len(content)]
    for sector in node.doomed:
        versions[sector] = [bytes(node.live[sector * SECTOR : (sector + 1) * SECTOR])]
    for offset, data in node.pending:
        if data is None:
            touched = _sectors(offset, max(0, len(content) - offset))
            _cut(content, offset)
        else:
            touched = _sectors(offset, len(data))
            _put(content, offset, data)
            written.update(touched)
        if len(content) != sizes[-1]:
            sizes.append(len(content))
        for sector in touched:
            versions.setdefault(sector, []).append(bytes(content[sector * SECTOR : (sector + 1) * SECTOR]))
    if len(node.live) != sizes[-1]:  # a size that went with a failed sync
        sizes.append(len(node.live))
    return versions, written, sizes


def _after(node: FileNode, loss: Loss, rng: random.Random) -> bytearray:
    """One file's bytes after a crash, which may be its own as they are."""
    if not node.pending and not node.doomed:
        return node.lend_durable()
    if loss.sectors == "new" and loss.sizes == "new":
        return node.lend_live()
    versions, written, sizes = _versions(node)
    size = loss.size(rng, sizes)
    content = bytearray(node.durable)
    _cut(content, size)
    for sector, found in loss.choose(rng, versions, written).items():
        start = sector * SECTOR
        end = min(size, start + len(found))
        if start < size:
            content[start:end] = found[: end - start]
            if len(found) < SECTOR and end < min(size, start + SECTOR):  # cut short once, then grown: zeros
                content[end : min(size, start + SECTOR)] = bytes(min(size, start + SECTOR) - end)
    return content
