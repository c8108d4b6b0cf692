"""The log alone under crashes: what was forced is read back, in order, and nothing else but what came right after it.

One seed is one life: append, force, move the head, crash at any change of the disk, read, go on.
"""

import contextlib
import random
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from logger import at_rest, control, extent, frame, lsn
from logger.config import LogConfig, LogType, WriteIntegrity
from logger.disk import PAGE
from logger.errors import LogClosed, LogDamaged, LogFailed
from logger.extent import DATA, ExtentHeader, linear_number
from logger.frame import FILL
from logger.log import Log
from tests.conftest import SOAK
from tests.sim.clock import SimClock
from tests.sim.disk import SECTOR, SimCrash, SimDisk
from tests.sim.loss import KEEP_ALL, LOSE_ALL, Loss, mixed

LOG_ID = b"0123456789abcdef"
KIND = 257


class NoRoom(Exception):
    """The log refused a reservation."""


Entry = tuple[int, int, bytes]  # LSN, LSN of its end, body


def short(entries: list[Entry]) -> str:
    """The last entries, for a message."""
    return f"{len(entries)} records, the last {[one[:2] for one in entries[-3:]]}"


class LogLife:
    """A log, and the list of what was appended to it."""

    def __init__(
        self, seed: int, integrity: WriteIntegrity, log_type: LogType = LogType.CIRCULAR, **attributes: Any
    ) -> None:
        self.rng = random.Random(seed)
        self.atomic = integrity is WriteIntegrity.SINGLE
        usual = {"primary_files": 2, "secondary_files": 1, "file_pages": 64, "buffer_pages": 18}
        self.config = LogConfig(path="/log/QM", log_type=log_type, write_integrity=integrity, **(usual | attributes))
        self.disk = SimDisk(seed)
        self.clock = SimClock()
        at_rest.create(self.disk, self.config, LOG_ID)
        self.appended: list[Entry] = []  # all since the head
        self.histories = [
            self.appended
        ]  # what may be read: the last one, or where nothing was forced since, an earlier
        self.forced = 0  # the end of what was forced
        self.epochs: list[int] = []
        self.crashes = 0
        self.advanced = 0  # how often it went on in a new extent before it had to
        self.begun = 0  # writes that were begun before they were asked for
        self.chance = random.Random(1_000_000 + seed)  # of that
        self.share = 0.0  # of the appends that have the disk begin
        self.disk.begins = lambda: self.chance.random() < 0.8
        self.start()

    def start(self) -> None:
        """Read the log, compare, and begin to write it, with a record that is forced: as a restart does.

        Until it is, the restart has told nobody anything, and the next one may find what an earlier one could have.
        """
        self.log = Log(self.disk, self.clock, self.config)
        reader, records = self.log.read(self.log.state.head, 0)
        found = [(one.lsn, one.end, bytes(one.body)) for one in records if one.kind != FILL]
        if not any(self.continues(found, history) for history in self.histories):
            raise AssertionError(f"read {short(found)}; forced {self.forced}; {[short(h) for h in self.histories]}")
        assert not self.epochs or reader.epoch <= self.epochs[-1]
        self.appended = found
        self.histories.append(found)
        self.log.begin(reader.end, reader.epoch, reader.page_up_to(reader.end))
        reader.close()
        assert not self.epochs or self.log.epoch > self.epochs[-1]
        self.epochs.append(self.log.epoch)
        self.append(30, reserve=False)  # there is always room for a checkpoint
        self.force()

    def continues(self, found: list[Entry], history: list[Entry]) -> bool:
        """Whether that is the beginning of this history, with all that was forced."""
        expected = [one for one in history if one[0] >= self.log.state.head]
        lost = expected[len(found) :]
        return found == expected[: len(found)] and (not lost or lost[0][1] > self.forced)

    def append(self, size: int, *, reserve: bool = True) -> None:
        body = self.rng.randbytes(size)
        log = self.log
        with log.lock:
            if reserve and not log.reserve(log.cost(size), 0):
                raise NoRoom
            lsn = log.buffer.tail
            self.appended.append((-1, lsn + 1, body))  # it may be found from here on, whole, whatever comes next
            at = log.append(KIND, 7, self.clock.wall_us(), body[: size // 2], body[size // 2 :])
            self.appended[-1] = (at, log.buffer.tail, body)
            if reserve and self.chance.random() < self.share:
                log.begin_force()
                self.begun += log._begun

    def advance(self) -> None:
        with self.log.lock:
            if not self.log.advance(self.clock.wall_us(), 0):
                raise NoRoom
        self.advanced += 1

    def force(self) -> None:
        tail = self.log.buffer.tail
        self.log.force(tail)
        self.forced = max(self.forced, tail)
        self.histories = [self.appended]

    def move_head(self) -> None:
        """As after a checkpoint: the head goes to a record near the durable end, and extents become free."""
        durable = [one for one in self.appended if one[1] <= self.forced]
        if durable:
            head = self.rng.choice(durable[-3:])[0]
            if head >= self.log.state.head:
                self.log.move_head(head, head)

    def make_room(self) -> None:
        self.force()
        self.move_head()
        self.log.grow()

    def step(self) -> None:
        kind = self.rng.random()
        size = self.rng.choice((1, 20, 300, 3000, 5000, 20000, 40000, 90000))
        try:
            if kind < 0.55:
                self.append(size)
            elif kind < 0.85:
                self.force()
            elif kind < 0.93:
                if not self.log._begun:
                    self.force()
                self.move_head()
            elif kind < 0.96:
                self.log.release_secondary()
            elif kind < 0.97:
                self.advance()
            else:
                self.log.close(clean=True)
                self.start()
        except NoRoom:
            self.make_room()

    def crash(self) -> None:
        """Lose what was not synced; now and then crash inside the start too."""
        self.crashes += 1
        self.disk = self.disk.crash(mixed(self.rng.randrange(1 << 30), atomic=self.atomic))
        while self.rng.random() < 0.3:
            self.disk.crash_after(self.rng.randint(1, 12), self.rng.random())
            try:
                self.start()
                break
            except (SimCrash, LogFailed):
                assert self.disk.dead
                self.disk = self.disk.crash(mixed(self.rng.randrange(1 << 30), atomic=self.atomic))
        else:
            self.start()
        self.disk.no_crash()

    def live(self, steps: int) -> None:
        for _ in range(steps):
            if self.rng.random() < 0.3:
                self.disk.crash_after(self.rng.randint(1, 10), self.rng.choice((0.0, self.rng.random())))
            try:
                self.step()
            except (SimCrash, LogFailed):  # a writer that is interrupted says that the log failed
                assert self.disk.dead
                self.appended[:] = [one for one in self.appended if one[0] >= 0]
                self.crash()
        self.disk = self.disk.crash(LOSE_ALL)
        self.start()


class LinearLife(LogLife):
    """The same with a linear log: what is behind the head is kept from one LSN on, and nothing of it ever goes."""

    def __init__(self, seed: int, integrity: WriteIntegrity) -> None:
        self.past: list[Entry] = []  # what is behind the head
        self.appended: list[Entry] = []
        self.media = 0  # LSN: somebody needs everything from here on
        self.highest = 0  # sequence
        self.recycled = self.reused = 0
        super().__init__(seed, integrity, LogType.LINEAR)

    def crash(self) -> None:
        self.reused += sum(kind == "rename" and "/R" in path for kind, path in self.disk.trace)
        super().crash()

    def start(self) -> None:
        self.past = list({one[0]: one for one in [*self.past, *self.appended] if one[0] >= 0}.values())
        super().start()  # which a crash may cut off: only then it is known what is behind the head
        head = self.log.state.head
        self.past = [one for one in self.past if self.media <= one[0] < head]
        if self.past:
            self.look_back()

    def look_back(self) -> None:
        """Everything from the media LSN to what is durable can be read."""
        start = self.past[0][0]
        reader = self.log.live_reader()
        try:
            found = [
                (one.lsn, one.end, bytes(one.body))
                for one in reader.records(start, durable=self.log.durable, until=self.log.durable)
                if one.kind != FILL
            ]
        finally:
            reader.close()
        expected = self.past + [one for one in self.appended if 0 <= one[0] < self.log.durable]
        same = found == expected[: len(found)]
        assert same, f"read {short(found)}, expected {short(expected)}"
        assert len(found) >= len(self.past), "the past was cut"

    def move_head(self) -> None:
        before = self.log.state.head
        super().move_head()
        head = self.log.state.head
        self.past += [one for one in self.appended if before <= one[0] < head]
        self.appended[:] = [one for one in self.appended if not 0 <= one[0] < head]
        self.look_at_numbers()
        self.log.make_primaries()

    def look_at_numbers(self) -> None:
        """Sequences rise, and those made ahead follow the last one without a gap."""
        extents = self.log._extents
        last = max(extents.sequences(), default=self.highest)
        assert last >= self.highest
        self.highest = max(self.highest, (self.forced - 1) // self.config.extent_bytes)  # others a crash may take back
        ahead = sorted(header.number for header in extents.headers() if not header.sequence)
        assert ahead == list(range(linear_number(last + 1), linear_number(last + 1) + len(ahead)))

    def step(self) -> None:
        kind = self.rng.random()
        if kind < 0.04 and self.past:
            self.media = self.rng.choice(self.past)[0]
            self.past = [one for one in self.past if one[0] >= self.media]
        elif kind < 0.1:
            needed = min(self.log.state.head, self.past[0][0] if self.past else self.log.state.head)
            for sequence in self.log.inactive():
                if sequence < needed // self.config.extent_bytes:
                    self.log.recycle(sequence)
                    self.recycled += 1
        elif kind < 0.12 and self.past:
            self.look_back()
        else:
            super().step()


@pytest.mark.parametrize("loss", [LOSE_ALL, KEEP_ALL], ids=["lost", "kept"])
@pytest.mark.parametrize("log_type", LogType)
@pytest.mark.parametrize("left", [0, 100, 4000, 15_000])
def test_a_restart_has_room_where_a_secondary_had_given_it(log_type: LogType, left: int, loss: int) -> None:
    """It held nothing yet, so the control file had not heard of it; the tail had gone on beyond the limit."""
    life = LogLife(1, WriteIntegrity.TRIPLE, log_type)
    log, end = life.log, 3 * life.config.extent_bytes
    with pytest.raises(NoRoom):
        while True:
            life.append(3000)
    life.force()
    assert log.grow()
    while log.buffer.tail < end - left - 3100:
        life.append(3000)
    life.append(end - left - log.buffer.tail - 48)
    life.force()
    assert log.buffer.tail <= end and len(log.state.extents) == 2
    for _ in range(2):  # each start logs a little, and may be cut off before a checkpoint
        life.disk = life.disk.crash(loss)
        life.start()
    for _ in range(16):
        life.append(1000, reserve=False)
    life.force()
    assert life.log.space.files == 3


@pytest.mark.parametrize("left", [0, 100, 9000])
@pytest.mark.parametrize("log_type", LogType)
def test_a_start_has_room_where_all_extents_that_are_allowed_are_full(log_type: LogType, left: int) -> None:
    """As where repair lets it begin with the first record: it has to log its checkpoint."""
    life = LogLife(1, WriteIntegrity.TRIPLE, log_type)
    end = 4 * life.config.extent_bytes
    assert life.log.grow()
    while life.log.buffer.tail < end - left - 3100:
        life.append(3000, reserve=False)
    life.append(end - left - life.log.buffer.tail - 48, reserve=False)
    life.force()
    life.disk = life.disk.crash(LOSE_ALL)
    life.start()
    life.append(5000, reserve=False)
    life.force()
    life.move_head()
    life.disk = life.disk.crash(LOSE_ALL)
    life.start()


@pytest.mark.parametrize("further", [0, 1])
@pytest.mark.parametrize("named", [True, False], ids=["made ahead", "of no table"])
def test_a_linear_log_goes_on_where_its_newest_extents_have_lost_their_headers(named: bool, further: int) -> None:
    """And the control file the copy that knew of them: their records say what they are."""
    life = LogLife(3, WriteIntegrity.TRIPLE, LogType.LINEAR)
    end = 2 * life.config.extent_bytes
    while life.log.buffer.tail < end - 4000:
        life.append(3000)
    life.append(end - life.log.buffer.tail - 48)
    life.force()
    if named:
        life.log.make_primaries()
    head = life.appended[-1][0]
    life.log.move_head(head, head)
    life.append(1000)
    life.force()
    if further:
        assert life.log.grow()
        life.advance()
        life.append(1000)
        life.force()
    older = with_the_older_copy(life)
    gone = [sequence for sequence in (2, 2 + further) if older.get(linear_number(sequence), 0) == 0]
    assert gone, "the older copy does not know what it holds"
    for sequence in gone:
        spoil(life, linear_number(sequence), 1)
    life.start()  # which compares
    assert life.log._started_at >= end


def with_the_older_copy(life: LogLife) -> dict[int, int]:
    """After a crash that loses nothing the newer copy of the control file is not whole; what the older one says."""
    life.disk = life.disk.crash(KEEP_ALL)
    file = life.disk.open(f"{life.config.path}/{control.NAME}")
    newer, _ = control.whole_copies(file)[0]
    file.write(control.COPY_BYTES * ((newer - 1) % 2), bytes(PAGE))
    file.sync()
    return dict(control.whole_copies(file)[0][1].extents)


def spoil(life: LogLife, number: int, pages: int, *, cut: bool = False) -> None:
    """Write noise over the first pages of that extent, and cut off its last one."""
    path = f"{life.config.path}/active/{extent.file_name(number)}"
    data = b"\xff" * PAGE * pages + life.disk.peek(path)[PAGE * pages :]
    life.disk.poke(path, data[: len(data) - PAGE * cut])


def outcome(life: LogLife) -> str:
    """Of a start, which compares."""
    try:
        life.start()
    except LogDamaged as exc:
        assert ".LOG" in str(exc)
        return "refused"
    return "all there"


def full_to_the_byte(log_type: LogType) -> LogLife:
    """A log whose primaries are full, and that has got a secondary."""
    life = LogLife(3, WriteIntegrity.TRIPLE, log_type)
    end = 3 * life.config.extent_bytes
    with pytest.raises(NoRoom):
        while True:
            life.append(3000)
    life.append(end - life.log.buffer.tail - 48, reserve=False)
    life.force()
    assert life.log.buffer.tail == end and life.log.grow()
    return life


@pytest.mark.parametrize(("pages", "cut"), [(1, False), (3, False), (4, False), (0, True), (1, True)])
@pytest.mark.parametrize("named", [True, False], ids=["made ahead", "of no table"])
@pytest.mark.parametrize("log_type", LogType)
def test_an_extent_that_only_the_newer_copy_of_the_control_file_knew(
    log_type: LogType, named: bool, pages: int, cut: bool
) -> None:
    """And which is damaged as well, so that only a spare page may have had its record: the log before it is full."""
    life = full_to_the_byte(log_type)
    if named:
        life.log._write_control(attrs.evolve(life.log.state, extents=life.log._extents.table()))
    life.append(1000)
    life.force()
    last = life.log._extents.at(3).number
    assert with_the_older_copy(life).get(last, None) == (0 if named else None)
    spoil(life, last, pages, cut=cut)
    assert outcome(life) == ("all there" if (pages, cut) == (1, False) else "refused")


def test_others_find_the_newest_extent_of_a_linear_log_that_has_lost_its_header_by_a_spare_page() -> None:
    """Its first page is not yet home."""
    life = LogLife(3, WriteIntegrity.TRIPLE, LogType.LINEAR)
    end = 2 * life.config.extent_bytes
    while life.log.buffer.tail < end - 4000:
        life.append(3000)
    life.append(end - life.log.buffer.tail - 48)
    life.force()
    life.append(1000)
    life.force()
    life.disk = life.disk.crash(KEEP_ALL)
    spoil(life, linear_number(2), 1)
    life.start()
    reader = life.log.live_reader()
    found = list(reader.records(life.log.state.head, durable=life.log.durable, until=life.log.durable))
    reader.close()
    assert [one.lsn for one in found if one.kind != FILL] == [one[0] for one in life.appended]


@pytest.mark.parametrize("gone", [[2], [3], [2, 3]])
def test_one_force_that_takes_two_extents_of_a_linear_log_which_lose_headers(gone: list[int]) -> None:
    """One copy of the control file came to know of both, and is lost: the later one's header alone shows no end."""
    config = {"primary_files": 4, "secondary_files": 2, "buffer_pages": 256}
    life = LogLife(3, WriteIntegrity.TRIPLE, LogType.LINEAR, **config)
    end = 2 * life.config.extent_bytes
    while life.log.buffer.tail < end - 9000:
        life.append(3000)
    life.force()
    while life.log.buffer.tail < end + life.config.extent_bytes + 5000:
        life.append(3000)
    life.force()
    assert with_the_older_copy(life) == {0: 1, 1: 0, 2: 0, 3: 0}
    for sequence in gone:
        spoil(life, linear_number(sequence), 1)
    assert outcome(life) == "all there"
    assert life.log._started_at > end + life.config.extent_bytes


@pytest.mark.parametrize("log_type", LogType)
def test_a_start_that_dies_where_it_mends_headers_can_be_made_again(log_type: LogType) -> None:
    """The control file names an extent whose first records are lost with a crash, and its header is lost later."""
    reached = 0
    for change in range(3, 9):
        for death in range(1, 9):
            life = LogLife(3, WriteIntegrity.TRIPLE, log_type)
            end = 2 * life.config.extent_bytes
            while life.log.buffer.tail < end - 9000:
                life.append(3000)
            life.force()
            crash(life, change, [3000] * 9, LOSE_ALL, start=False)
            _, state = control.read(life.disk, f"{life.config.path}/{control.NAME}")
            taken = [number for number, sequence in state.extents if sequence == 2]
            if not taken:
                continue
            spoil(life, taken[0], 1)
            life.disk.crash_after(death, 0.0)
            with contextlib.suppress(SimCrash, LogFailed):
                life.start()
            reached += life.disk.dead
            life.disk = life.disk.crash(KEEP_ALL)
            assert outcome(life) == "all there", f"{change}, {death}"
    assert reached > 5


@pytest.mark.parametrize("log_type", LogType)
def test_three_crashes_where_an_extent_begins_exactly_where_the_log_ends(log_type: LogType) -> None:
    """The first one keeps a record of the next extent and loses what was before it, the second one tears that extent's
    header, and the third one a copy of the control file: nothing that was safe is lost, and so it starts."""
    reached = 0
    for seed in range(1500 if SOAK else 210):
        life = LogLife(seed, WriteIntegrity.TRIPLE, log_type)
        end = 2 * life.config.extent_bytes
        while life.log.buffer.tail < end - 20_000:
            life.append(3000)
        life.force()
        life.log.move_head(life.appended[-1][0], life.appended[-1][0])
        crash(life, 5 + seed % 3, [3000] * 10, mixed(3 * seed))
        tail = life.log.buffer.tail
        if not end - 30_000 < tail < end - 100:
            continue
        life.append(end - tail - 48)
        life.force()
        assert life.log.buffer.tail == end
        crash(life, 1, [100], mixed(3 * seed + 1), start=False)
        life.disk.crash_after(3 + seed % 6, 1.0)
        with pytest.raises((SimCrash, LogFailed)):
            life.start()
        life.disk = life.disk.crash(mixed(3 * seed + 2))
        reached += len(control.whole_copies(life.disk.open_read(f"{life.config.path}/{control.NAME}"))) < 2
        life.start()
    assert reached > 10


def used_before(log_type: LogType) -> tuple[LogLife, int]:
    """A log full up to where its third extent begins, and one record there, in a spare page: home is a page of an
    earlier part, whose extent this was. And the number of that extent."""
    life = LogLife(3, WriteIntegrity.TRIPLE, log_type)
    end = 3 * life.config.extent_bytes

    def let_go() -> None:
        life.force()
        head = life.appended[-1][0]
        life.log.move_head(head, head)
        life.appended[:-1] = []
        if log_type is LogType.LINEAR:
            for sequence in life.log.inactive():
                life.log.recycle(sequence)
            life.log.make_primaries()

    while life.log.buffer.tail < 2 * life.config.extent_bytes + 5000:
        life.append(3000)
    let_go()
    while life.log.buffer.tail < end - 4000:
        life.append(3000)
    life.append(end - life.log.buffer.tail - 48, reserve=False)
    life.force()
    life.append(1000)
    life.force()
    return life, life.log._extents.at(3).number


@pytest.mark.parametrize("damage", ["noise, one spare", "noise, both spares", "zeros"])
@pytest.mark.parametrize("log_type", LogType)
def test_a_record_in_a_spare_page_that_is_lost_of_an_extent_that_was_used_before(
    log_type: LogType, damage: str
) -> None:
    """With its header, and the copy of the control file that knew of it: what is home is no proof that it had none."""
    life, number = used_before(log_type)
    assert with_the_older_copy(life).get(number) != 3
    path = f"{life.config.path}/active/{extent.file_name(number)}"
    data = life.disk.peek(path)
    assert frame.lsn_at(memoryview(data)[DATA:]) in (life.config.extent_bytes, 0) and any(data[DATA : DATA + PAGE])
    fill = b"\0" if damage == "zeros" else b"\xff"
    spares = [fill * PAGE if any(one) or damage == "noise, both spares" else one for one in spare_pages(data)]
    life.disk.poke(path, fill * PAGE + b"".join(spares) + data[DATA:])
    assert outcome(life) == "refused"
    life.disk.poke(path, b"\xff" * PAGE + data[PAGE:])
    assert outcome(life) == "all there", "the record itself says it"


@pytest.mark.parametrize("log_type", LogType)
def test_the_header_of_an_extent_that_was_never_used_is_lost_and_a_copy_of_the_control_file(log_type: LogType) -> None:
    """As where a crash tears it while the extent is taken: behind it are only zeros, so it never had a record."""
    life = LogLife(3, WriteIntegrity.TRIPLE, log_type)
    end = 2 * life.config.extent_bytes
    while life.log.buffer.tail < end - 4000:
        life.append(3000)
    life.append(end - life.log.buffer.tail - 48)
    life.force()
    assert with_the_older_copy(life)[1] == 0
    spoil(life, 1, 1)
    assert outcome(life) == "all there"


def spare_pages(data: bytes) -> list[bytes]:
    return [data[at : at + PAGE] for at in range(PAGE, DATA, PAGE)]


def beyond_every_extent(log_type: LogType, records: int) -> LogLife:
    """A log full up to its last byte, and so many records beyond, in a secondary that no control file names yet but the
    newer copy, which is lost."""
    life = full_to_the_byte(log_type)
    for _ in range(records):
        life.append(3000, reserve=False)
    life.force()
    assert 2 not in with_the_older_copy(life)
    return life


CUTS = {
    "cut to its header": lambda data: data[:PAGE],
    "cut to one page of records": lambda data: data[: DATA + PAGE],
    "its last page cut off": lambda data: data[:-PAGE],
    "all but the header noise": lambda data: data[:PAGE] + b"\xff" * (len(data) - PAGE),
    "header and first page noise": lambda data: b"\xff" * PAGE + data[PAGE:DATA] + b"\xff" * PAGE + data[DATA + PAGE :],
}


@pytest.mark.parametrize("damage", CUTS)
@pytest.mark.parametrize("log_type", LogType)
def test_a_whole_header_says_that_there_is_more_where_the_records_do_not(log_type: LogType, damage: str) -> None:
    life = beyond_every_extent(log_type, 8)
    path = f"{life.config.path}/active/{extent.file_name(2)}"
    before = life.disk.peek(path)
    life.disk.poke(path, CUTS[damage](before))
    assert outcome(life) == "refused"
    life.disk.poke(path, before)
    assert outcome(life) == "all there"


def test_the_one_record_of_a_secondary_that_no_control_file_names_is_lost() -> None:
    life = beyond_every_extent(LogType.CIRCULAR, 1)
    path = f"{life.config.path}/active/{extent.file_name(2)}"
    data = life.disk.peek(path)
    assert sum(map(any, spare_pages(data))) == 1, "its record is there"
    spares = [b"\xff" * PAGE if any(one) else one for one in spare_pages(data)]
    life.disk.poke(path, data[:PAGE] + b"".join(spares) + data[DATA:])
    assert outcome(life) == "refused"


@pytest.mark.parametrize("named", [True, False], ids=["named", "of no table"])
@pytest.mark.parametrize("log_type", LogType)
def test_an_older_control_file_and_the_newest_extent_has_lost_its_header(log_type: LogType, named: bool) -> None:
    """Both copies are whole; the records say what nobody else does."""
    if named:
        life, number = used_before(log_type)
        older = [(n, s) for n, s in life.log.state.extents if s != 3]
        older = sorted([*older, (number, 0 if log_type is LogType.LINEAR else 1)])
    else:
        life, number = beyond_every_extent(log_type, 1), 2
        older = [(0, 1), (1, 2)]
    life.disk = life.disk.crash(KEEP_ALL)
    path = f"{life.config.path}/{control.NAME}"
    state = control.read(life.disk, path)[1]
    life.disk.remove(path)
    control.create(life.disk, path, attrs.evolve(state, extents=tuple(older)))
    spoil(life, number, 1)
    assert outcome(life) == "all there"


def up_to(life: LogLife, end: int, last: int = 4000) -> None:
    """Fill the log up to just that LSN, and force it."""
    while life.log.buffer.tail < end - last:
        life.append(3000, reserve=False)
    life.append(end - life.log.buffer.tail - 48, reserve=False)
    life.force()
    assert life.log.buffer.tail == end


def alter(life: LogLife, sequence: int, change: Callable[[bytes], bytes]) -> None:
    """After a crash that loses nothing the extent that holds this part is another."""
    path = life.log._extents.at(sequence).path
    life.disk = life.disk.crash(KEEP_ALL)
    life.disk.poke(path, change(life.disk.peek(path)))


def without_spares(data: bytes) -> bytes:
    return data[:PAGE] + b"\xff" * (DATA - PAGE) + data[DATA:]


def without_front(data: bytes) -> bytes:
    return bytes(DATA) + data[DATA:]


@pytest.mark.parametrize("before", [0, 9000])
@pytest.mark.parametrize("size", [20_000, 40_000, 60_000])
@pytest.mark.parametrize("log_type", LogType)
def test_spare_pages_are_lost_where_one_record_fills_what_there_is_of_an_extent(
    log_type: LogType, size: int, before: int
) -> None:
    """Its end is in one of them, so the reader sees but a part of a record, which begins before the extent."""
    life = LogLife(3, WriteIntegrity.TRIPLE, log_type)
    up_to(life, 3 * life.config.extent_bytes - before)
    assert life.log.grow()
    life.append(size, reserve=False)
    life.force()
    alter(life, 3, without_spares)
    assert outcome(life) == "refused"


@pytest.mark.parametrize("log_type", LogType)
def test_the_front_of_the_extent_is_lost_that_the_log_ends_in(log_type: LogType) -> None:
    """A last page in a spare page leaves no trace; but that extent has its header before it has a record."""
    life = LogLife(3, WriteIntegrity.TRIPLE, log_type)
    for _ in range(5):
        life.append(3000)
        life.force()
    alter(life, 1, without_front)
    assert outcome(life) == "refused"
    if log_type is LogType.CIRCULAR:
        life, _ = used_before(log_type)
        alter(life, 3, without_front)
        assert outcome(life) == "refused"


def test_the_front_of_the_extent_is_lost_and_the_log_has_ended_in_order() -> None:
    life = LogLife(3, WriteIntegrity.TRIPLE)
    up_to(life, life.config.extent_bytes + 10 * PAGE)
    path = life.log._extents.at(1).path
    life.log.close(clean=True)
    life.disk = life.disk.crash(KEEP_ALL)
    life.disk.poke(path, without_front(life.disk.peek(path)))
    assert outcome(life) == "all there"


def test_an_older_control_file_tells_nothing_of_the_newest_secondary() -> None:
    """Both of its copies are whole; what was read in an extent that it does not know says that it is an older one."""
    life = LogLife(3, WriteIntegrity.TRIPLE, secondary_files=3)
    size, path = life.config.extent_bytes, f"{life.config.path}/{control.NAME}"
    up_to(life, 2 * size)
    life.append(3000)
    life.force()
    older = life.disk.peek(path)
    for end in (3, 4):
        up_to(life, end * size)
        assert life.log.grow()
    life.append(1000, reserve=False)
    life.force()
    alter(life, 4, lambda data: b"\xff" * DATA + data[DATA:])
    life.disk.poke(path, older)
    assert outcome(life) == "refused"


@pytest.mark.parametrize("gone", [True, False])
def test_an_older_control_file_and_what_follows_lies_beyond_a_gap(gone: bool) -> None:
    """An extent has no record before the control file says that it holds that part."""
    life = LogLife(3, WriteIntegrity.TRIPLE, primary_files=4)
    size, path = life.config.extent_bytes, f"{life.config.path}/{control.NAME}"
    life.append(3000)
    life.force()
    older = life.disk.peek(path)
    for end in (2, 3):
        up_to(life, end * size)
    life.append(3000, reserve=False)
    life.force()
    next_part = life.log._extents.at(2).path
    life.disk = life.disk.crash(KEEP_ALL)
    life.disk.poke(path, older)
    if gone:
        life.disk.remove(next_part)
    assert outcome(life) == ("refused" if gone else "all there")


@pytest.mark.parametrize("log_type", LogType)
def test_an_extent_that_a_copy_of_the_control_file_names_and_that_is_gone(log_type: LogType) -> None:
    """The other copy, which is lost, may have known that the log goes on there."""
    life, number = used_before(log_type)
    if log_type is LogType.LINEAR:
        life = LogLife(3, WriteIntegrity.TRIPLE, log_type)
        up_to(life, 2 * life.config.extent_bytes)
        number = 1
        life.append(1000)
        life.force()
    assert number in with_the_older_copy(life)
    life.disk.remove(f"{life.config.path}/active/{extent.file_name(number)}")
    assert outcome(life) == "refused"


@pytest.mark.parametrize(
    ("claims", "comes"),
    [
        ({"epoch": 0}, "all there"),
        ({"log_id": bytes(16)}, "refused"),
        ({"number": 7}, "all there"),
        ({"sequence": 2}, "all there"),
    ],
    ids=["an earlier life", "another log", "another file", "an earlier part"],
)
def test_a_file_that_is_left_over_where_the_log_ends(claims: dict[str, Any], comes: str) -> None:
    """No table names it, and its header says of itself that it is none of the log's next part.

    That of another log is not written over where it is in the way of a new extent.
    """
    life = LogLife(3, WriteIntegrity.TRIPLE)
    size = life.config.extent_bytes
    up_to(life, 3 * size)
    life.disk = life.disk.crash(KEEP_ALL)
    header = ExtentHeader(number=2, log_id=LOG_ID, sequence=3, extent_bytes=size, epoch=1, time=0)
    rest = b"\xff" * (DATA - PAGE + size)
    path = f"{life.config.path}/active/{extent.file_name(2)}"
    before = life.disk.snapshot(KEEP_ALL)
    life.disk.poke(path, header.encode() + rest)
    assert outcome(life) == "refused"
    life.disk = before
    life.disk.poke(path, attrs.evolve(header, **claims).encode() + rest)
    assert outcome(life) == comes


def test_an_extent_that_was_made_ahead_for_later_tells_nothing_of_the_next_part() -> None:
    life = LogLife(3, WriteIntegrity.TRIPLE, LogType.LINEAR, primary_files=3)
    up_to(life, 2 * life.config.extent_bytes)
    number = linear_number(3)
    assert with_the_older_copy(life)[number] == 0
    spoil(life, number, 5)
    assert outcome(life) == "all there"


class TornFront(Loss):
    """Everything reached the disk, but of the front of an extent only the header: its spare pages are noise."""

    def choose(self, rng: random.Random, versions: dict[int, list[bytes]], written: set[int]) -> dict[int, bytes]:
        torn = range(1, DATA // SECTOR)
        return {n: rng.randbytes(SECTOR) if n in torn else has[-1] for n, has in versions.items()}


class TornControl(Loss):
    """What was being written is noise."""

    def choose(self, rng: random.Random, versions: dict[int, list[bytes]], written: set[int]) -> dict[int, bytes]:
        return {n: rng.randbytes(SECTOR) for n in versions}


def first_torn(life: LogLife, path: str, loss: Loss, act: Callable[[], None]) -> SimDisk:
    """The disk after a crash in the first sync of that file that `act` makes, which tears it."""
    states: list[SimDisk] = []

    def look(kind: str, of: str, disk: SimDisk = life.disk) -> None:
        if kind == "sync" and of == path and not states and path in disk.unsynced():
            states.append(disk.snapshot(attrs.evolve(loss, sizes="new", names="new")))

    life.disk.before_effect = look
    act()
    return states[0]


@pytest.mark.parametrize("crashes", [1, 2])
@pytest.mark.parametrize("log_type", LogType)
def test_crashes_that_tear_the_front_of_an_extent_that_no_table_names(log_type: LogType, crashes: int) -> None:
    """And then the control file: by crashes alone a start is never refused."""
    life = full_to_the_byte(log_type)
    safe, forced = list(life.appended), life.forced
    life.append(1000, reserve=False)
    disk = first_torn(life, life.log._extents.path_of(2), TornFront(), life.force)
    for number in range(crashes):
        life.disk, life.appended, life.forced, life.histories = disk, list(safe), forced, [safe]
        life.epochs.clear()
        if number + 1 < crashes:
            disk = first_torn(life, f"{life.config.path}/{control.NAME}", TornControl(), life.start)
            assert len(control.whole_copies(disk.open_read(f"{life.config.path}/{control.NAME}"))) == 1
    assert outcome(life) == "all there"


def crash(life: LogLife, change: int, sizes: list[int], loss: Loss, *, start: bool = True) -> None:
    """Die at that change of the disk while records of these sizes are forced."""
    life.disk.crash_after(change, 1.0)
    with pytest.raises((SimCrash, LogFailed)):
        for size in sizes:
            life.append(size, reserve=False)
        life.force()
    life.appended[:] = [one for one in life.appended if one[0] >= 0]
    life.disk = life.disk.crash(loss)
    if start:
        life.start()


@pytest.mark.parametrize("left", [0, DATA, DATA + 20 * PAGE])
def test_an_extent_that_is_kept_for_reuse_and_was_cut_is_not_used_again(left: int) -> None:
    life, _ = used_before(LogType.LINEAR)
    life.log.move_head(life.appended[-1][0], life.appended[-1][0])
    for sequence in life.log.inactive():
        life.log.recycle(sequence)
    active = f"{life.config.path}/active"
    kept = [name for name in life.disk.list(active) if name.startswith("R")]
    assert kept
    for name in kept:
        life.disk.poke(f"{active}/{name}", life.disk.peek(f"{active}/{name}")[:left])
    while life.log.buffer.tail < 5 * life.config.extent_bytes:
        life.log.make_primaries()
        life.append(3000)
        life.make_room()
        sizes = {len(life.disk.peek(f"{active}/{name}")) for name in life.disk.list(active) if name.startswith("S")}
        assert sizes == {DATA + life.config.extent_bytes}
    life.disk = life.disk.crash(LOSE_ALL)
    assert outcome(life) == "all there"


def test_seed_890_an_advance_that_a_secondary_made_room_for() -> None:
    LinearLife(890, WriteIntegrity.TRIPLE).live(150)


@pytest.mark.parametrize("integrity", [WriteIntegrity.TRIPLE, WriteIntegrity.SINGLE], ids=["triple", "single"])
def test_a_linear_log_keeps_its_past_too(integrity: WriteIntegrity) -> None:
    """Faults 1-7, 16, 17, 20, 21 of a linear log, whose extents are let go of and used again."""
    crashes = recycled = reused = advanced = 0
    failed: list[str] = []
    for seed in range(1500 if SOAK else 16):
        life = LinearLife(seed, integrity)
        life.share = 0.3 * (seed % 3 > 0)
        try:
            life.live(600 if seed % 20 == 0 else 150)
        except Exception as exc:
            failed.append(f"seed {seed}: {exc!r}")
        crashes += life.crashes
        recycled += life.recycled
        reused += life.reused
        advanced += life.advanced
    assert not failed, f"{len(failed)} lives: {failed[:5]}"
    assert crashes > 60
    assert recycled > 13
    assert reused > 6
    assert advanced > 5


@pytest.mark.parametrize("integrity", [WriteIntegrity.TRIPLE, WriteIntegrity.SINGLE], ids=["triple", "single"])
def test_any_crash_keeps_what_was_forced_and_only_what_came_right_after_it(integrity: WriteIntegrity) -> None:
    """Faults 1-7, 16, 17, 20, 21 at the level of the log."""
    crashes = laps = begun = 0
    failed: list[str] = []
    for seed in range(1500 if SOAK else 16):
        life = LogLife(seed, integrity)
        life.share = 0.3 * (seed % 3 > 0)
        try:
            life.live(600 if seed % 20 == 0 else 120)
        except Exception as exc:
            failed.append(f"seed {seed}: {exc!r}")
        crashes += life.crashes
        begun += life.begun
        laps = max(laps, life.forced // (life.config.extent_bytes * 3))
    assert not failed, f"{len(failed)} lives: {failed[:5]}"
    assert crashes > 60
    assert laps >= 3
    assert (begun > 18) is (integrity is WriteIntegrity.TRIPLE)


def test_row_70_the_last_lsns() -> None:
    """Faults 70: just below the limit it works and restarts; at the limit it stops loudly, with nothing lost."""
    life = LogLife(70, WriteIntegrity.TRIPLE)
    life.log.close(clean=True)
    size = life.config.extent_bytes
    start = lsn.LAST // size * size - 2 * size
    path = at_rest.control_path(life.config.path)
    _, state = control.read(life.disk, path)
    state = attrs.evolve(
        state,
        head=start,
        checkpoint=start,
        durable=start,
        clean_end=start,
        extents=tuple((number, 0) for number, _ in state.extents),
    )
    life.disk.remove(path)
    control.create(life.disk, path, state)
    for number, _ in state.extents:
        header = ExtentHeader(number=number, log_id=LOG_ID, sequence=0, extent_bytes=size, epoch=0, time=0)
        extent.create(life.disk, at_rest.active_path(life.config.path), header, direct=True).file.close()
    life.disk.sync_dir(life.config.path)
    life.appended, life.forced = [], 0
    life.histories = [life.appended]
    life.start()
    assert life.log.buffer.tail > start
    appended = 0
    with pytest.raises(LogClosed):
        for _ in range(200):
            try:
                life.append(30_000)
                life.force()
                appended += 1
            except NoRoom:
                life.make_room()
    assert appended > 10
    life.appended[:] = [one for one in life.appended if one[0] >= 0]
    life.disk = life.disk.crash(LOSE_ALL)
    log = Log(life.disk, life.clock, life.config)
    _, records = log.read(log.state.head, 0)
    assert life.continues([(one.lsn, one.end, bytes(one.body)) for one in records if one.kind != FILL], life.appended)


class TornSpares(Loss):
    """Everything reached the disk but the spare page that was being written, which is noise."""

    def choose(self, rng: random.Random, versions: dict[int, list[bytes]], written: set[int]) -> dict[int, bytes]:
        spare = range(PAGE // SECTOR, 3 * PAGE // SECTOR)
        return {n: rng.randbytes(SECTOR) if n in spare else has[-1] for n, has in versions.items()}


@pytest.mark.parametrize("before", range(4))
def test_two_crashes_in_a_row_never_tear_both_spare_pages(before: int) -> None:
    """The first tears one spare page, with the log ending in a page that the other one does not speak of."""
    life = LogLife(before, WriteIntegrity.TRIPLE)
    for _ in range(before):
        life.append(10)
        life.force()
    for size in (3000, 3000, 3000, 3000, 3000):
        life.append(size)
    cut_off = life.force  # the first time; then each restart in turn
    for _ in range(4):
        states: list[SimDisk] = []

        def look(kind: str, path: str, states: list[SimDisk] = states, disk: SimDisk = life.disk) -> None:
            if kind == "sync" and path.endswith(".LOG") and disk.unsynced():
                states.append(disk.snapshot(TornSpares(seed=before, sizes="new", names="new")))

        life.disk.before_effect = look
        cut_off()
        assert states
        life.disk = states[0]
        life.histories, life.forced = [life.appended], 0  # what was seen after that moment did not happen
        cut_off = life.start
    life.start()


def at_a_border(seed: int) -> None:
    """Records that take two parts of the log, where one ends; crashes in their force, and in the starts after it."""
    rng = random.Random(seed)
    log_type = rng.choice(list(LogType))
    life = LogLife(seed, WriteIntegrity.TRIPLE, log_type, primary_files=4, secondary_files=2, buffer_pages=256)
    size = life.config.extent_bytes
    for _ in range(4):
        up_to(life, (life.log.buffer.tail // size + 1) * size)
        life.disk.crash_after(rng.randint(1, 9), rng.choice([0.0, rng.random(), 1.0]))
        try:
            life.append(rng.choice([300_000, 500_000]), reserve=False)
            life.force()
        except (SimCrash, LogFailed):
            pass
        else:
            return
        life.disk = life.disk.crash(mixed(rng.randrange(1 << 30)))
        for _ in range(rng.randint(0, 3)):
            life.disk.crash_after(rng.randint(1, 12), rng.choice([0.0, rng.random(), 1.0]))
            try:
                life.start()
                life.disk.no_crash()
                break
            except (SimCrash, LogFailed):
                life.disk = life.disk.crash(mixed(rng.randrange(1 << 30)))
        else:
            life.start()


@pytest.mark.parametrize("seed", [68, 384, 408, 538, *range(400 if SOAK else 20)])
def test_rows_16_and_21_crashes_alone_refuse_no_start_where_a_record_takes_several_extents(seed: int) -> None:
    """What a crash has torn, or kept though it was declared lost, is no part of the log that is missing."""
    at_a_border(seed)
