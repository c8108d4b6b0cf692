"""What `PosixDisk` asks of the operating system, call by call, and what of it no crash can take.

`Calls` stands in for `os` in `logger/posix_*.py`: it passes each call on, but for the syncs, and tells `Promises`,
which knows the manual pages and nothing else. A write promises nothing, with RWF_DSYNC just itself; fsync and fdatasync
promise what was written to that file before; a name is promised by an fsync of its directory, a move by that of both.
A call that is not known here fails: whoever needs it says what it promises.
"""

import os
from collections.abc import Callable, Sequence

import attrs

from logger.disk import Buffer

HARMLESS = frozenset(
    {
        "geteuid",
        "register_at_fork",
        "fspath",
        "pread",
        "fstat",
        "stat",
        "listdir",
        "statvfs",
        "sched_yield",
        "getpid",
        "readlink",
        "uname",
        "sysconf",
        "major",
        "minor",
        "posix_fadvise",
        "urandom",
    }
)


@attrs.define(eq=False)
class Node:
    """A file: what is promised of it, and all that was written since. Or a directory, which has nothing of that."""

    directory: bool = False
    kept: bytearray = attrs.field(factory=bytearray)
    asked: list[tuple[int, bytes | None]] = attrs.field(factory=list)  # (offset, data) or (size, None), in order


Place = tuple[Node, str]


@attrs.define(eq=False)
class Change:
    """A node that loses a name, gets one, or both; promised when all of `waits` were synced."""

    node: Node
    gone: Place | None
    come: Place | None
    waits: set[Node]


def apply(content: bytearray, at: int, data: bytes | None) -> None:
    """Write `data` at that offset, or cut to that size."""
    if data is None:
        del content[at:]
    content.extend(bytes(max(0, at - len(content))))
    if data is not None:
        content[at : at + len(data)] = data


class Promises:
    """The names and bytes that are there whatever a crash takes."""

    def __init__(self) -> None:
        self.root = Node(directory=True)
        self.now: dict[Place, Node] = {}
        self.changes: list[Change] = []

    def find(self, path: str) -> Node:
        """The node of that name; a directory that was there before is taken for promised."""
        node, at = self.root, ""
        for name in path.strip("/").split("/"):
            at += f"/{name}"
            if name and (node, name) not in self.now:
                assert os.path.isdir(at), f"{at} was not made by these calls"
                self.named(Node(directory=True), None, (node, name), set())
            node = self.now[node, name] if name else node
        return node

    def place(self, path: str) -> Place:
        above, _, name = path.rpartition("/")
        return self.find(above), name

    def named(self, node: Node, gone: Place | None, come: Place | None, waits: set[Node]) -> None:
        if gone is not None:
            del self.now[gone]
        if come is not None:
            self.now[come] = node
        self.changes.append(Change(node, gone, come, waits))

    def synced(self, node: Node) -> None:
        """An fsync: of the file's bytes, or of the directory's names."""
        for at, data in node.asked:
            apply(node.kept, at, data)
        node.asked.clear()
        for change in self.changes:
            change.waits.discard(node)

    def wrote(self, node: Node, at: int, data: bytes, *, durably: bool) -> None:
        node.asked.append((at, data))
        if durably:
            apply(node.kept, at, data)

    def files(self) -> dict[str, bytes]:
        """All files whose names are promised, with what is promised of them."""
        names: dict[Place, Node] = {}
        places: dict[Node, Place] = {}
        for change in self.changes:
            if change.waits:
                continue
            was = places.pop(change.node, None)  # it has one name, also where an earlier change of it is not promised
            if was is not None and names[was] is change.node:
                del names[was]
            if change.come is not None:
                names[change.come] = change.node
                places[change.node] = change.come
        found: dict[str, bytes] = {}

        def walk(directory: Node, path: str) -> None:
            for (parent, name), node in names.items():
                if parent is directory and node.directory:
                    walk(node, f"{path}/{name}")
                elif parent is directory:
                    found[f"{path}/{name}"] = bytes(node.kept)

        walk(self.root, "")
        return found


class Calls:
    """`os`, as far as `logger/posix_*.py` need it."""

    def __init__(self) -> None:
        self.promises = Promises()
        self.asked: list[str] = []  # the calls that change or sync something
        self.before: Callable[[], None] = lambda: None  # called before each of them
        self.short: int | None = None  # the next write does no more than so many bytes
        self.refused = 0  # the error with which RWF_DSYNC is refused, as by a file system that does not know it
        self._open: dict[int, Node] = {}

    def __getattr__(self, name: str) -> object:
        found = getattr(os, name)
        known = not callable(found) or name in HARMLESS
        assert known, f"os.{name} is new here: what does it promise?"
        return found

    def _ask(self, call: str) -> None:
        self.before()
        self.asked.append(call)

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        made = bool(flags & os.O_CREAT) and not os.path.exists(path)
        if made:
            self._ask("create")
        try:
            fd = os.open(path, flags, mode)
        finally:
            if made and os.path.exists(path):  # also where a file system makes the file and then refuses
                place = self.promises.place(path)
                self.promises.named(Node(), None, place, {place[0]})
        self._open[fd] = self.promises.find(path)
        return fd

    def close(self, fd: int) -> None:
        del self._open[fd]
        os.close(fd)

    def pwrite(self, fd: int, data: Buffer, at: int) -> int:
        return self._write("pwrite", fd, data, at, durably=False)

    def pwritev(self, fd: int, parts: Sequence[Buffer], at: int, flags: int = 0) -> int:
        assert flags in (0, os.RWF_DSYNC) and len(parts) == 1
        if flags and self.refused:
            raise OSError(self.refused, os.strerror(self.refused))
        return self._write("pwritev" + " durably" * bool(flags), fd, parts[0], at, durably=bool(flags))

    def _write(self, call: str, fd: int, data: Buffer, at: int, *, durably: bool) -> int:
        self._ask(call)
        part = memoryview(data)[: self.short]
        self.short = None
        assert os.pwritev(fd, [part], at) == len(part)
        self.promises.wrote(self._open[fd], at, bytes(part), durably=durably)
        return len(part)

    def ftruncate(self, fd: int, size: int) -> None:
        self._ask("ftruncate")
        os.ftruncate(fd, size)
        self._open[fd].asked.append((size, None))

    def fdatasync(self, fd: int) -> None:
        self._ask("fdatasync")
        self.promises.synced(self._open[fd])

    def fsync(self, fd: int) -> None:
        self._ask("fsync")
        self.promises.synced(self._open[fd])

    def rename(self, old: str, new: str) -> None:
        self._ask("rename")
        os.rename(old, new)
        gone, come = self.promises.place(old), self.promises.place(new)
        self.promises.named(self.promises.now[gone], gone, come, {gone[0], come[0]})

    def unlink(self, path: str) -> None:
        self._removed("unlink", os.unlink, path)

    def rmdir(self, path: str) -> None:
        self._removed("rmdir", os.rmdir, path)

    def _removed(self, call: str, remove: Callable[[str], None], path: str) -> None:
        self._ask(call)
        remove(path)
        place = self.promises.place(path)
        self.promises.named(self.promises.find(path), place, None, {place[0]})

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self._ask("mkdir")
        os.mkdir(path, mode)
        place = self.promises.place(path)
        self.promises.named(Node(directory=True), None, place, {place[0]})
