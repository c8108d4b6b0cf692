"""Extents: finding a log, its beginning and its durable end, dividing it; what is damaged or missing is named."""

import contextlib
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logger.compressed import Compression, compress
from logger.errors import LogDamaged
from pipeline import extents, windows
from pipeline.extents import Part
from pipeline.filters import Filters
from recovery import extent_index
from tests.pipeline import reference
from tests.pipeline.reference import Row
from tests.pipeline.works import ACTIVE, Works, told, told_of
from tests.qmgr.world import DATA, NAME

STEPS = ["put", "one", "unit", "many", "long", "begin", "prepare", "put_many", "fill", "image", "one", "get"]


@pytest.fixture(autouse=True)
def _forgotten() -> None:
    """What one test has learned of a log is none of the next one's."""
    windows._indexes.clear()
    extents._known.clear()


def a_log(seed: int = 3, *, indexed: bool = True) -> Works:
    """Some extents, with indexes or without."""
    works = Works(seed)
    for _ in range(3):
        for step in STEPS:
            works.do(step)
    works.stop()
    for path in [path for path in works.world.disk.files() if path.endswith(".IDX")]:
        works.world.disk.remove(path)
    if indexed:
        index(works)
    return works


def index(works: Works) -> list[str]:
    """Build the indexes of all extents but the last two; their paths."""
    disk, log = works.world.disk, works.log()
    history = log.history(disk)
    built = []
    for place in list(history.places().values())[:-1]:
        with contextlib.closing(log.reader(history)) as reader, contextlib.suppress(LogDamaged):
            extent_index.keep(disk, place, extent_index.build(reader, place, log.log_id, log.extent_bytes))
            built.append(extent_index.path_of(place))
    return built


@pytest.fixture(scope="module")
def plain() -> tuple[Works, list[Row]]:
    works = a_log(indexed=False)
    return works, reference.rows(works.log(), works.disk)


@pytest.fixture(scope="module")
def indexed() -> tuple[Works, list[Row]]:
    works = a_log()
    assert sum(path.endswith(".IDX") for path in works.world.disk.files()) > 3
    return works, reference.rows(works.log(), works.disk)


# ---- the same rows, wherever they lie


def test_an_indexed_log_reads_as_one_without(plain: tuple[Works, list[Row]], indexed: tuple[Works, list[Row]]) -> None:
    for works, rows in (plain, indexed):
        assert told(works.log(), works.disk) == rows


@pytest.mark.parametrize("which", ["plain", "indexed"])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_parts_of_any_division_make_up_the_whole(
    which: str, data: st.DataObject, request: pytest.FixtureRequest
) -> None:
    works, rows = request.getfixturevalue(which)
    log, disk = works.log(), works.disk
    first, end = log.first(disk), log.end(disk=disk)
    cuts = data.draw(st.lists(st.integers(first // 8, end // 8).map(lambda place: place * 8), max_size=6))
    places = sorted({first, end, *cuts})
    log = extents.named(log, end, disk)
    found = [row for low, high in itertools.pairwise(places) for row in told_of(Part(log, low, high, 0), disk)]
    assert found == rows


def test_batches_have_the_rows_that_were_asked_for(indexed: tuple[Works, list[Row]]) -> None:
    works, rows = indexed
    log = extents.named(works.log(), works.log().end(disk=works.disk), works.disk)
    part = Part(log, log.first(works.disk), log.end(disk=works.disk), 0)
    assert told_of(part, works.disk, columns=("lsn", "position"), count=7) == [
        {"lsn": row["lsn"], "position": row["position"]} for row in rows
    ]


def moved(works: Works, compression: list[Compression | None]) -> None:
    """The extents by turns archived as they are or compressed, with their indexes, but for the last ones."""
    disk = works.world.disk
    disk.mkdir(f"{DATA}/log/{NAME}/archive")
    names = sorted(name for name in disk.list(ACTIVE) if name.endswith(".LOG"))
    for number, name in enumerate(names[:-4]):
        source, target = f"{ACTIVE}/{name}", f"{DATA}/log/{NAME}/archive/{name}"
        kind = compression[number % len(compression)]
        if kind is None:
            disk.rename(source, target)
        else:
            compress(disk, source, target + kind.suffix, kind)
            disk.unlink(source)
        index = name.replace(".LOG", ".IDX")
        if disk.exists(f"{ACTIVE}/{index}"):
            disk.rename(f"{ACTIVE}/{index}", f"{DATA}/log/{NAME}/archive/{index}")


@pytest.mark.parametrize("with_index", [False, True])
def test_archived_compressed_and_active_extents_are_one_log(with_index: bool) -> None:
    works = a_log(indexed=with_index)
    rows = reference.rows(works.log(), works.disk)
    moved(works, [None, Compression.GZIP, Compression.ZSTD])
    kinds = {path.rpartition(".")[2] for path in works.world.disk.files() if "/archive/" in path}
    assert kinds >= {"LOG", "gz", "zst"}
    assert told(works.log(), works.disk) == rows
    for folder in (f"{DATA}/log/{NAME}", f"{DATA}/log/{NAME}/"):
        log = extents.find(folder, disk=works.disk)
        assert told(log, works.disk) == rows


def test_a_folder_of_extents_is_a_log(indexed: tuple[Works, list[Row]]) -> None:
    works, rows = indexed
    log = extents.find(ACTIVE, disk=works.disk)
    assert log.control == ""
    assert told(log, works.disk) == rows


def test_what_there_is_of_a_log_names_the_queues_by_the_first_image_of_all_definitions() -> None:
    works = a_log()
    qm = works.world.start()
    works.queue()
    works.fill()
    qm.record_image(["A"])
    works.put()
    works.stop()
    disk = works.world.disk
    catalogued = next(r["lsn"] for r in reference.rows(works.log(), disk) if r["kind"] == "CATALOG")
    for name in [n for n in disk.list(ACTIVE) if n.endswith(".LOG")][: catalogued // works.log().extent_bytes - 1]:
        disk.remove(f"{ACTIVE}/{name}")
    log = extents.find(ACTIVE, disk=disk)
    assert set(extents.named(log, log.end(disk=disk), disk).names.values()) >= {"A", "B", "C.D"}
    assert {row["object"] for row in told(log, disk) if row["kind"] == "PUT"} >= {"A", "B"}


def test_a_queue_that_nothing_names_has_no_name(indexed: tuple[Works, list[Row]]) -> None:
    works, _ = indexed
    log = works.log()
    end = log.end(disk=works.disk)
    found = told_of(Part(log.with_names({1: "A"}), log.first(works.disk), end, 0), works.disk)
    assert {row["object"] for row in found if row["object_number"] == 1} == {"A"}
    assert {row["object"] for row in found if row["object_number"] == 2} == {None}


# ---- filters


@st.composite
def filters(draw: st.DrawFn) -> Filters:
    low, high = draw(st.integers(0, 40)), draw(st.integers(0, 40))
    size = 64 * 4096
    begin = 1_700_000_000_000_000
    return Filters(
        low_lsn=draw(st.sampled_from([None, low * size // 4])),
        high_lsn=draw(st.sampled_from([None, high * size // 4])),
        low_time=draw(st.sampled_from([None, begin])),
        objects=draw(st.none() | st.frozensets(st.sampled_from(["A", "B", "C.D", "ALIAS", "PASSING", "NONE"]))),
        kinds=draw(st.none() | st.frozensets(st.sampled_from(["PUT", "GET", "COMMIT", "DEFINE", "DELETE_ALIAS", "?"]))),
    )


@pytest.mark.parametrize("which", ["plain", "indexed"])
@settings(max_examples=40, deadline=None)
@given(chosen=filters())
def test_filters_let_pass_what_they_should(which: str, chosen: Filters, request: pytest.FixtureRequest) -> None:
    works, rows = request.getfixturevalue(which)
    assert told(works.log(), works.disk, chosen) == list(reference.passing(rows, chosen))


@pytest.mark.parametrize("which", ["plain", "indexed"])
def test_a_time_filter_lets_pass_what_it_should(which: str, request: pytest.FixtureRequest) -> None:
    works, rows = request.getfixturevalue(which)
    times = sorted({row["time"] for row in rows})
    for low, high in (
        (times[0], times[0] + 1),
        (times[len(times) // 2], times[-1]),
        (times[-1], None),
        (None, times[9]),
    ):
        chosen = Filters(low_time=low, high_time=high)
        assert told(works.log(), works.disk, chosen) == list(reference.passing(rows, chosen))
