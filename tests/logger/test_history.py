"""History: every form of an extent is found and read, what is not one does not count, a gap is never jumped."""

from collections.abc import Callable

import attrs
import pytest

from logger import at_rest
from logger import log as logs
from logger.compressed import Compression, compress
from logger.disk import PAGE, File
from logger.errors import LogDamaged
from logger.extent import decode_header, linear_number
from logger.frame import FILL
from logger.history import MAX_OPEN_FILES, Form, History, Place
from logger.reader import LogReader
from tests.logger.extents import (
    ACTIVE,
    ARCHIVE,
    EXTENT,
    HOUR,
    ID,
    SMALL,
    START,
    content,
    name,
    with_extents,
    written_by_the_log,
)
from tests.sim.disk import SimDisk


def history(disk: SimDisk, extent_bytes: int = SMALL) -> History:
    return History(disk, [ACTIVE, ARCHIVE], ID, extent_bytes)


def squeeze(disk: SimDisk, path: str, kind: Compression = Compression.GZIP, *, keep: bool = False) -> str:
    """Compress a file where it lies."""
    compress(disk, path, path + kind.suffix, kind, chunk_bytes=PAGE)
    if not keep:
        disk.remove(path)
    return path + kind.suffix


def to_archive(disk: SimDisk, path: str) -> str:
    target = f"{ARCHIVE}/{path.rpartition('/')[2]}"
    if not disk.exists(ARCHIVE):
        disk.mkdir(ARCHIVE)
    disk.poke(target, disk.peek(path))
    disk.remove(path)
    return target


def contents(seen: History) -> dict[int, bytes]:
    found = {}
    for sequence in seen.places():
        file = seen.open(sequence)
        assert file is not None
        found[sequence] = file.read(0, file.size())
        file.close()
    return found


# Places


def test_each_form_is_found_in_the_order_of_the_stream() -> None:
    disk = with_extents(range(1, 6))
    to_archive(disk, f"{ACTIVE}/{name(1)}")
    to_archive(disk, squeeze(disk, f"{ACTIVE}/{name(2)}"))
    squeeze(disk, f"{ACTIVE}/{name(3)}", Compression.ZSTD)
    seen = history(disk)
    places = seen.places()
    assert list(places) == [1, 2, 3, 4, 5]
    assert [place.form for place in places.values()] == [
        Form.ARCHIVED,
        Form.COMPRESSED,
        Form.COMPRESSED,
        Form.ACTIVE,
        Form.ACTIVE,
    ]
    assert places[1] == Place(
        sequence=1,
        path=f"{ARCHIVE}/S0000000.LOG",
        form=Form.ARCHIVED,
        size=len(content(1)),
        taken=START + HOUR,
    )
    assert places[3].size == len(disk.peek(f"{ACTIVE}/S0000002.LOG.zst"))
    assert contents(seen) == {sequence: content(sequence) for sequence in range(1, 6)}
    assert disk.open_files == 0


def test_of_two_copies_the_plain_one_that_is_active_wins() -> None:
    disk = with_extents(range(1, 2))
    plain = f"{ACTIVE}/{name(1)}"
    squeeze(disk, plain, keep=True)
    disk.mkdir(ARCHIVE)
    disk.poke(f"{ARCHIVE}/{name(1)}", content(1))
    squeeze(disk, f"{ARCHIVE}/{name(1)}", keep=True)
    seen = history(disk)
    order = [plain, f"{ARCHIVE}/{name(1)}", plain + ".gz", f"{ARCHIVE}/{name(1)}.gz"]
    while order:
        assert [place.path for place in seen.copies()[1]] == order
        assert seen.places()[1].path == order[0]
        disk.remove(order.pop(0))
    assert seen.places() == {}


def test_numbers_begin_again_after_ten_million_extents() -> None:
    assert [linear_number(s) for s in (1, 2, 9_999_999, 10_000_000, 10_000_001, 20_000_001)] == [
        0, 1, 9_999_998, 9_999_999, 0, 0,
    ]  # fmt: skip
    disk = with_extents(range(9_999_999, 10_000_003))
    assert list(history(disk).places()) == [9_999_999, 10_000_000, 10_000_001, 10_000_002]
    assert disk.exists(f"{ACTIVE}/S0000000.LOG")


@pytest.mark.parametrize("first", [1, 9_999_999])
def test_only_what_is_from_a_part_on_is_opened_where_the_numbers_begin_again_too(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = with_extents(range(first, first + 4))
    opened: list[str] = []
    opening = disk.open_read

    def open_read(path: str) -> File:
        opened.append(path)
        return opening(path)

    monkeypatch.setattr(disk, "open_read", open_read)
    for since in range(first, first + 4):
        opened.clear()
        there = list(range(since, first + 4))
        assert list(history(disk).places_from(since)) == there
        assert {path for path in opened if path.endswith(".LOG")} == {f"{ACTIVE}/{name(one)}" for one in there}


WRONG: dict[str, Callable[[bytes], bytes]] = {
    "another log's": lambda _: content(2, log_id=b"x" * 16),
    "under the name of another": lambda _: content(3),
    "ready, without a sequence": lambda data: attrs.evolve(_header(data), sequence=0).encode() + data[PAGE:],
    "of another size": lambda data: attrs.evolve(_header(data), extent_bytes=2 * SMALL).encode() + data[PAGE:],
    "cut": lambda data: data[:-1],
    "empty": lambda _: b"",
    "with a damaged header": lambda data: data[:40] + b"x" + data[41:],
    "zeros": lambda data: bytes(len(data)),
}


def _header(data: bytes) -> object:
    header = decode_header(data)
    assert header is not None
    return header


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("compressed", [False, True])
def test_row_44_a_file_that_is_not_the_extent_of_its_name_does_not_count(wrong: str, compressed: bool) -> None:
    disk = with_extents(range(1, 4))
    path = f"{ACTIVE}/{name(2)}"
    disk.poke(path, WRONG[wrong](content(2)))
    if compressed:
        squeeze(disk, path)
    seen = history(disk)
    assert list(seen.places()) == [1, 3]
    assert seen.open(2) is None


@pytest.mark.parametrize("other", ["S0000001.LOG.new", "R0000001.LOG", "S0000001.LOG.gz.new", "S1.LOG", "S0000001.IDX"])
def test_other_names_do_not_count(other: str) -> None:
    disk = with_extents(range(1, 2))
    disk.poke(f"{ACTIVE}/{other}", content(2))
    assert list(history(disk).places()) == [1]


def test_directories_that_are_not_there_hold_nothing() -> None:
    assert history(SimDisk()).places() == {}
    assert history(SimDisk()).open(1) is None


# Opening while files move


def test_a_file_that_was_moved_after_the_look_is_found_where_it_is_now() -> None:
    disk = with_extents(range(1, 4))
    seen = history(disk)
    seen.places()
    path = to_archive(disk, f"{ACTIVE}/{name(2)}")
    for move in (lambda path: squeeze(disk, path), lambda path: path):
        file = seen.open(2)
        assert file is not None
        assert file.read(0, 1 << 20) == content(2)
        path = move(path)
        assert file.read(PAGE, 99) == content(2)[PAGE : PAGE + 99]
        file.close()
    assert seen.name(2) == path
    disk.remove(path)
    assert seen.open(2) is None
    assert seen.open(4) is None


def test_files_that_are_moved_while_the_directories_are_looked_at_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name was listed, and the file has another one when it is opened, as while many are compressed."""
    disk = with_extents(range(1, 6))
    paths = [to_archive(disk, f"{ACTIVE}/{name(sequence)}") for sequence in range(1, 5)]
    listing = disk.list

    def listed(directory: str) -> list[str]:
        names = listing(directory)
        if directory == ARCHIVE and paths:
            if len(paths) > 1:
                squeeze(disk, paths.pop())
            else:
                disk.remove(paths.pop())
        return names

    monkeypatch.setattr(disk, "list", listed)
    seen = history(disk)
    assert list(seen.places()) == [1, 2, 3, 4, 5]
    assert seen.places()[4].form is Form.COMPRESSED
    assert list(seen.places()) == [2, 3, 4, 5], "what was removed is gone"
    assert seen.damaged == []


def test_a_file_that_is_moved_in_two_looks_at_the_directories_is_found_in_the_third(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = with_extents(range(1, 4))
    path = to_archive(disk, f"{ACTIVE}/{name(2)}")
    plain = disk.peek(path)
    listing = disk.list
    looks = 0

    def listed(directory: str) -> list[str]:
        nonlocal looks
        names = listing(directory)
        if directory == ARCHIVE:
            looks += 1
            if looks == 1:
                squeeze(disk, path)
            elif looks == 2:
                disk.poke(path, plain)
                disk.remove(path + Compression.GZIP.suffix)
        return names

    monkeypatch.setattr(disk, "list", listed)
    assert list(history(disk).places()) == [1, 2, 3]


def test_a_name_that_was_given_to_another_part_of_the_log_is_not_taken_for_the_old_one() -> None:
    disk = with_extents(range(1, 3))
    seen = history(disk)
    seen.places()
    disk.poke(f"{ACTIVE}/{name(1)}", content(10_000_001))
    assert seen.open(1) is None
    file = seen.open(10_000_001)
    assert file is not None
    file.close()
    assert disk.open_files == 0


@pytest.mark.parametrize("kind", list(Compression))
def test_row_51_a_damaged_compressed_extent_is_refused_by_name(kind: Compression) -> None:
    disk = with_extents(range(1, 4))
    path = squeeze(disk, f"{ACTIVE}/{name(2)}", kind)
    good = disk.peek(path)
    for bad in (
        b"",
        good[:-1],
        good[:100],
        bytes(len(good)),
        good[:50] + b"?" + good[51:],
        good[:-9] + b"?" + good[-8:],
    ):
        disk.poke(path, bad)
        seen = history(disk)
        seen.places()
        with pytest.raises(LogDamaged, match=f"{path} is damaged"):
            seen.open(2)
    assert disk.open_files == 0


# Reading


def bodies_of(reader: LogReader, start: int, durable: int = 0) -> list[bytes]:
    try:
        return [bytes(one.body) for one in reader.records(start, durable=durable) if one.kind != FILL]
    finally:
        reader.close()


def lived() -> tuple[SimDisk, list[bytes], logs.ControlState]:
    """A log over ten extents, with records over several frames at most of their borders."""
    bodies = [bytes([n]) * (3000 + 177 * n) for n in range(160)]
    disk, state = written_by_the_log([(300, 0, body) for body in bodies])
    assert max(sequence for _, sequence in state.extents) > 9
    return disk, bodies, state


def test_a_reader_reads_over_all_forms_with_few_files_open() -> None:
    disk, bodies, state = lived()
    state, plain = at_rest.read_only(disk, "/log")
    assert bodies_of(plain, state.head) == bodies
    for sequence in range(1, 8):
        path = f"{ACTIVE}/{name(sequence)}"
        if sequence % 3 == 1:
            path = squeeze(disk, path, list(Compression)[sequence % 2])
        if sequence < 5:
            to_archive(disk, path)
    before = disk.open_files
    seen = history(disk, EXTENT)
    reader = seen.reader(state)
    found = []
    for record in reader.records(state.head, durable=state.clean_end):
        if record.kind != FILL:
            found.append(bytes(record.body))
        assert disk.open_files - before <= MAX_OPEN_FILES + 1
    assert found == bodies
    assert reader.end == state.clean_end
    assert len(reader.page_up_to(reader.end)) == reader.end % PAGE
    reader.close()
    assert disk.open_files == before


@pytest.mark.parametrize("missing", [2, 5, 7])
def test_row_42_a_gap_in_the_extents_is_never_jumped(missing: int) -> None:
    disk, bodies, state = lived()
    path = f"{ACTIVE}/{name(missing)}"
    disk.remove(path)
    reader = history(disk, EXTENT).reader(state)
    found = []
    with pytest.raises(LogDamaged, match=f"{path} is missing.*restore it from a backup") as caught:
        for record in reader.records(state.head):
            found.append(bytes(record.body))
    reader.close()
    assert caught.value.amq == "AMQ6767"
    assert caught.value.lsn == missing * EXTENT
    assert 0 < len(found) < len(bodies)
    assert found == bodies[: len(found)]


def test_what_was_removed_at_the_front_is_named_with_the_oldest_that_is_left() -> None:
    disk, _, state = lived()
    for sequence in (1, 2):
        disk.remove(f"{ACTIVE}/{name(sequence)}")
    with pytest.raises(
        LogDamaged, match=f"{name(1)} is missing.*the oldest extent that is there is {ACTIVE}/{name(3)}"
    ):
        bodies_of(history(disk, EXTENT).reader(state), state.head)


def test_where_the_last_extents_are_missing_what_is_known_to_be_durable_tells() -> None:
    disk, bodies, state = lived()
    last = max(sequence for _, sequence in state.extents)
    disk.remove(f"{ACTIVE}/{name(last)}")
    found = bodies_of(history(disk, EXTENT).reader(state), state.head)
    assert 0 < len(found) < len(bodies)
    assert found == bodies[: len(found)]
    with pytest.raises(LogDamaged):
        bodies_of(history(disk, EXTENT).reader(state), state.head, durable=state.clean_end)


def test_an_extent_that_is_removed_while_it_is_read_is_named() -> None:
    disk, _, state = lived()
    reader = history(disk, EXTENT).reader(state)
    opened = [reader._open(sequence) for sequence in range(1, MAX_OPEN_FILES + 3)]
    disk.remove(f"{ACTIVE}/{name(1)}")
    file = opened[0]
    assert file is not None
    with pytest.raises(LogDamaged, match=name(1)):
        file.read(0, 1)
    reader.close()


def test_row_40_an_extent_whose_header_is_damaged_is_known_by_the_frame_that_it_begins_with() -> None:
    disk, bodies, state = lived()
    for path in disk.files(ACTIVE):
        data = bytearray(disk.peek(path))
        data[20] ^= 1
        disk.poke(path, bytes(data))
    seen = History(disk, [ACTIVE, ARCHIVE], state.log_id, state.extent_bytes)
    assert bodies_of(seen.reader(state), state.extent_bytes) == bodies
    stranger = History(disk, [ACTIVE], b"another log's id", state.extent_bytes)
    assert stranger.places() == {}


def test_what_is_archived_and_not_written_yet_is_of_another_past() -> None:
    """The extent that is written now may be there by hand; the next one can't be of this log."""
    disk = with_extents(range(1, 6))
    for sequence in range(1, 6):
        to_archive(disk, f"{ACTIVE}/{name(sequence)}")
    assert list(History(disk, [ACTIVE, ARCHIVE], ID, SMALL, lambda: 3).places()) == [1, 2, 3]
    assert list(history(disk).places()) == [1, 2, 3, 4, 5]
