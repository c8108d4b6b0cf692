"""Compressed extents: any piece reads as before, other tools read them, and no damage goes unseen."""

import gzip
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path

import attrs
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from logger import compressed
from logger.compressed import Compression, compress, compression_of, decode_table, open_plain
from logger.errors import LogDamaged, LogError
from logger.posix_disk import PosixDisk
from tests.sim.disk import SimDisk
from tests.sim.loss import LOSE_ALL

CHUNK = 1000
KINDS = list(Compression)


def text_of(size: int, seed: int = 0) -> bytes:
    """Bytes of which some repeat and some do not."""
    rng = random.Random(seed)
    parts = [rng.choice([rng.randbytes(30), b"again " * 20, bytes(100)]) for _ in range(size // 30 + 1)]
    return b"".join(parts)[:size]


def packed(data: bytes, kind: Compression, chunk: int = CHUNK) -> tuple[SimDisk, str]:
    disk = SimDisk()
    disk.poke("/S0000000.LOG", data)
    path = f"/S0000000.LOG{kind.suffix}"
    compress(disk, "/S0000000.LOG", path, kind, chunk_bytes=chunk)
    return disk, path


def whole(disk: SimDisk, path: str) -> bytes:
    file = open_plain(disk, path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


@given(
    st.integers(0, 5000),
    st.integers(1, 1500),
    st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 6000)), max_size=30),
    st.sampled_from(KINDS),
)
def test_any_piece_reads_as_from_the_plain_file(
    size: int, chunk: int, pieces: list[tuple[int, int]], kind: Compression
) -> None:
    data = text_of(size, seed=chunk)
    disk, path = packed(data, kind, chunk)
    file = open_plain(disk, path)
    assert file.size() == size
    for offset, length in pieces:
        assert file.read(offset, length) == data[offset : offset + length]
        assert len(file._cache) <= compressed.CACHED_CHUNKS
    file.close()
    assert disk.open_files == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_tools_that_people_have_read_it(kind: Compression, tmp_path: Path) -> None:
    data = text_of(3 * compressed.CHUNK_BYTES + 12345)
    plain = tmp_path / "S0000007.LOG"
    plain.write_bytes(data)
    path = f"{plain}{kind.suffix}"
    done: list[int] = []
    compress(PosixDisk(), str(plain), path, kind, each_chunk=done.append)
    assert done == [compressed.CHUNK_BYTES, 2 * compressed.CHUNK_BYTES, 3 * compressed.CHUNK_BYTES, len(data)]
    raw = Path(path).read_bytes()
    if kind is Compression.GZIP:
        assert gzip.decompress(raw) == data
    else:
        with zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as reader:
            assert reader.read() == data
    file = open_plain(PosixDisk(), path)
    assert file.read(len(data) - 5, 99) == data[-5:]
    file.close()


@pytest.mark.parametrize("kind", KINDS)
def test_row_51_a_flip_anywhere_is_refused_by_name(kind: Compression) -> None:
    data = text_of(3500)
    disk, path = packed(data, kind)
    good = disk.peek(path)
    for at in range(len(good)):
        for bit in (1, 0x80):
            disk.poke(path, good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :])
            with pytest.raises(LogDamaged, match=f"{path} is damaged.*restore the file from a backup") as caught:
                whole(disk, path)
            assert caught.value.path == path
    assert disk.open_files == 0


@pytest.mark.parametrize("kind", KINDS)
def test_row_51_a_chunk_that_does_not_become_what_was_compressed_is_refused(kind: Compression) -> None:
    """It was packed from bytes that memory had changed: whole in itself, and wrong."""
    data = text_of(3500)
    wrong = data[:1500] + bytes([data[1500] ^ 1]) + data[1501:]
    tables = []
    for content in (data, wrong):
        disk, path = packed(content, kind)
        file = disk.open_read(path)
        tables.append(compressed.read_table(file, path))
        file.close()
    right, found = tables
    entries = [(*theirs[:2], ours[2]) for ours, theirs in zip(right.entries, found.entries, strict=True)]
    mixed = attrs.evolve(found, entries=tuple(entries))
    disk.poke(path, disk.peek(path).replace(found.encode(), mixed.encode()))
    opened = open_plain(disk, path)
    assert opened.read(0, CHUNK) == data[:CHUNK]
    with pytest.raises(LogDamaged, match="do not become what was compressed"):
        opened.read(CHUNK, CHUNK)
    opened.close()


@pytest.mark.parametrize("kind", KINDS)
def test_row_51_a_file_that_was_cut_or_went_on_is_refused(kind: Compression) -> None:
    disk, path = packed(text_of(3500), kind)
    good = disk.peek(path)
    for bad in [*(good[:size] for size in range(len(good))), good + b"\0", good + good, bytes(len(good)), good[1:]]:
        disk.poke(path, bad)
        with pytest.raises(LogDamaged, match=path):
            whole(disk, path)


@pytest.mark.parametrize("kind", KINDS)
def test_damage_in_one_chunk_leaves_the_others_readable(kind: Compression) -> None:
    data = text_of(3500)
    disk, path = packed(data, kind)
    good = disk.peek(path)
    disk.poke(path, good[:20] + bytes([good[20] ^ 1]) + good[21:])
    file = open_plain(disk, path)
    assert file.read(CHUNK, 2500) == data[CHUNK:]
    for _ in range(2):
        with pytest.raises(LogDamaged):
            file.read(CHUNK - 1, 2)
    file.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_chunk_that_grows_beyond_what_the_table_says_is_no_bomb(kind: Compression) -> None:
    """Whoever writes the table could also write its CRCs; then the size alone stands between us and the memory."""
    made = compressed.codec(kind, "")
    bomb = made.pack(bytes(8 << 20))
    assert len(bomb) < 10_000
    assert made.unpack(bomb, 8 << 20) == bytes(8 << 20)
    for size in (0, 1, CHUNK, (8 << 20) - 1, (8 << 20) + 1):
        assert made.unpack(bomb, size) is None
    assert made.unpack(bomb + b"x", 8 << 20) is None
    assert made.unpack(bomb[:-1], 8 << 20) is None
    assert made.unpack(b"", 5) is None
    assert made.unpack(b"noise" * 9, 5) is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_chunk_that_says_that_it_grows_beyond_that_takes_no_memory(kind: Compression) -> None:
    made = compressed.codec(kind, "")
    bomb = made.pack(bytes(8 << 20))
    tracemalloc.start()
    try:
        assert made.unpack(bomb, CHUNK) is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=400))
def test_noise_is_no_table(data: bytes) -> None:
    assert decode_table(data) is None
    for kind in KINDS:
        disk = SimDisk()
        disk.poke(f"/x{kind.suffix}", data)
        with pytest.raises(LogDamaged):
            open_plain(disk, f"/x{kind.suffix}")


def test_a_whole_table_that_lies_about_its_chunks_is_refused() -> None:
    largest = compressed.MAX_CHUNK_BYTES
    for chunk, size, chunks, right in (
        (0, 10, 2, False),
        (5, 11, 2, False),
        (largest, largest, 1, True),
        (largest + 1, largest + 1, 1, False),
    ):
        table = compressed.Table(chunk=chunk, size=size, head=bytes(128), entries=((1, 1, 1),) * chunks)
        assert decode_table(table.encode()[: -compressed.FOOT.size]) == (table if right else None)


def test_a_flip_anywhere_in_a_table_is_seen_in_the_table_itself() -> None:
    table = compressed.Table(chunk=5, size=10, head=bytes(128), entries=((1, 2, 3), (4, 5, 6)))
    data = table.encode()[: -compressed.FOOT.size]
    assert decode_table(data) == table
    for at in range(len(data)):
        assert decode_table(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) is None


def test_the_other_kind_of_file_under_the_name_is_refused() -> None:
    disk, path = packed(text_of(100), Compression.GZIP)
    disk.poke("/S0000000.LOG.zst", disk.peek(path))
    with pytest.raises(LogDamaged, match=r"/S0000000\.LOG\.zst"):
        open_plain(disk, "/S0000000.LOG.zst")


def test_the_name_says_how_it_is_compressed() -> None:
    assert compression_of("/a/S0000001.LOG.zst") is Compression.ZSTD
    assert compression_of("/a/S0000001.LOG.gz.new") is Compression.GZIP
    assert compression_of("/a.gz/S0000001.LOG") is None


def test_the_view_can_only_be_read() -> None:
    disk, path = packed(b"x", Compression.GZIP)
    file = open_plain(disk, path)
    for change in (
        lambda: file.write(0, b"y"),
        lambda: file.write_durably(0, b"y"),
        lambda: file.truncate(0),
        lambda: file.sync(),
    ):
        with pytest.raises(OSError, match="can only be read"):
            change()
    file.close()


def test_a_file_too_large_for_its_table_is_refused_before_anything_is_written() -> None:
    disk = SimDisk()
    disk.poke("/S0000000.LOG", bytes(20_000))
    with pytest.raises(LogError, match="too large"):
        compress(disk, "/S0000000.LOG", "/S0000000.LOG.gz", Compression.GZIP, chunk_bytes=3)
    assert disk.files() == ["/S0000000.LOG"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_largest_table_is_read_and_one_more_chunk_is_refused(kind: Compression) -> None:
    most = (compressed.MAX_TABLE_BYTES - compressed.FRONT.size - compressed.FOOT.size) // compressed.ENTRY.size
    disk, path = packed(bytes(most), kind, chunk=1)
    assert whole(disk, path) == bytes(most)
    with pytest.raises(LogError, match="too large"):
        packed(bytes(most + 1), kind, chunk=1)


WITHOUT = """
import sys
sys.modules["zstandard"] = None
from logger.compressed import Compression, compress, open_plain
from logger.posix_disk import PosixDisk
from logger.errors import LogError
disk, plain, packed = PosixDisk(), sys.argv[1], sys.argv[2]
compress(disk, plain, plain + ".gz", Compression.GZIP)
open_plain(disk, plain + ".gz").close()
for attempt in (lambda: compress(disk, plain, plain + ".zst", Compression.ZSTD), lambda: open_plain(disk, packed)):
    try:
        attempt()
    except LogError as exc:
        print(exc)
"""


def test_without_the_package_the_error_says_what_to_install_and_that_gzip_will_do(tmp_path: Path) -> None:
    plain, other = tmp_path / "plain", tmp_path / "other"
    for path in (plain, other):
        path.write_bytes(b"text")
    compress(PosixDisk(), str(other), f"{other}.zst", Compression.ZSTD)
    command = [sys.executable, "-c", WITHOUT, str(plain), f"{other}.zst"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert not Path(f"{plain}.zst").exists()
    assert len(said) == 2
    for line in said:
        assert "needs the package zstandard" in line
        assert "pip install zstandard" in line
        assert "gzip" in line


def test_a_compressed_file_is_durable_once_its_name_is() -> None:
    disk = SimDisk()
    disk.poke("/plain", b"x" * 5000)
    compress(disk, "/plain", "/plain.gz", Compression.GZIP)
    disk.sync_dir("/")
    kept = disk.crash(LOSE_ALL)
    assert kept.peek("/plain.gz") == disk.peek("/plain.gz")
