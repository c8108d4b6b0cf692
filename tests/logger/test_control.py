"""The control file: two copies in turn; the newest whole one counts."""

import errno
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logger import control
from logger.config import LogType
from logger.control import COPY_BYTES, ControlFile, ControlState
from logger.crc import crc32
from logger.errors import LogDamaged
from tests.sim.disk import SimCrash, SimDisk
from tests.sim.loss import KEEP_ALL, LOSE_ALL, mixed

PATH = "/amqhlctl.lfh"


def state(**fields: Any) -> ControlState:
    plain = ControlState(
        log_id=b"i" * 16, log_type=LogType.CIRCULAR, extent_bytes=262144, epoch=1, epoch_from=262144, head=262144,
        checkpoint=262144, durable=262144, clean_end=0, extents=((0, 1), (1, 0)),
    )  # fmt: skip
    return attrs.evolve(plain, **fields)


def made(disk: SimDisk) -> ControlFile:
    control.create(disk, PATH, state())
    disk.sync_dir("/")
    return ControlFile(disk, PATH)


def test_row_52_a_control_file_that_can_not_be_synced_is_not_left_open() -> None:
    disk = SimDisk()
    made(disk).close()
    assert disk.open_files == 0
    disk.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        ControlFile(disk, PATH)
    assert disk.open_files == 0


@given(st.binary(min_size=16, max_size=16), st.integers(1, 2**40), st.integers(0, 2**63), st.integers(1, 2**50))
def test_what_is_encoded_is_decoded(log_id: bytes, epoch: int, head: int, number: int) -> None:
    one = attrs.evolve(state(), log_id=log_id, epoch=epoch, head=head, extents=tuple((n, n * 7) for n in range(511)))
    encoded = one.encode(number)
    assert len(encoded) <= COPY_BYTES
    assert control.decode(encoded.ljust(COPY_BYTES, b"\0")) == (number, one)
    assert control.decode(encoded[:-1]) is None
    assert control.decode(b"") is None


def test_a_field_that_a_later_version_has_added_is_passed_over() -> None:
    content = state().encode(3)[control.HEADER.size :].replace(b"{", b'{"later": 1, ', 1)
    rest = control.HEADER.pack(control.MAGIC, 0, control.HEADER.size + len(content), 3)[12:] + content
    assert control.decode(control.MAGIC + crc32(rest).to_bytes(4, "little") + rest) == (3, state())


def test_the_newest_whole_copy_counts() -> None:
    disk = SimDisk()
    file = made(disk)
    for epoch in range(2, 6):
        file.write(state(epoch=epoch))
        assert control.read(disk, PATH)[1].epoch == epoch
    whole = disk.peek(PATH)
    newest = 0 if control.read(disk, PATH)[0] % 2 else 1
    for at in (newest, 1 - newest):
        broken = bytearray(whole)
        broken[COPY_BYTES * at + 30] ^= 1
        disk.poke(PATH, bytes(broken))
        assert control.read(disk, PATH)[1].epoch in ((4, 5) if at == newest else (5,))
    assert control.read(disk, PATH)[1].epoch == 5


def test_a_write_spares_the_newest_copy_so_a_torn_one_costs_nothing() -> None:
    disk = SimDisk()
    file = made(disk)
    for epoch in range(2, 12):
        for seed in range(8):
            trial = disk.snapshot(KEEP_ALL)
            opened = ControlFile(trial, PATH)
            trial.crash_after(1, part=seed / 8)  # the sync never happens
            with pytest.raises(SimCrash):
                opened.write(state(epoch=epoch))
            after = trial.crash(seed)
            assert control.read(after, PATH)[1].epoch in (epoch - 1, epoch)
        file.write(state(epoch=epoch))
        assert control.read(disk.snapshot(LOSE_ALL), PATH)[1].epoch == epoch


def test_a_copy_that_a_killed_process_left_in_memory_is_durable_before_the_other_is_written_over() -> None:
    disk = SimDisk()
    file = made(disk)
    file.write(state(epoch=2))
    disk.crash_after(2)  # the write, and not its sync
    with pytest.raises(SimCrash):
        file.write(state(epoch=3))
    for seed in range(40):
        killed = disk.crash(KEEP_ALL)
        next_one = ControlFile(killed, PATH)
        killed.crash_after(1 + seed % 2, part=0.5)
        with pytest.raises(SimCrash):
            next_one.write(state(epoch=4))
        assert control.read(killed.crash(mixed(seed)), PATH)[1].epoch in (3, 4)


def test_row_52_a_copy_whose_sync_has_failed_is_not_built_on() -> None:
    """The system's memory has it, the disk does not, and no later sync changes that."""
    disk = SimDisk()
    file = made(disk)
    file.write(state(epoch=2))
    disk.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.write(state(epoch=3))
    for seed in range(40):
        later = disk.snapshot(KEEP_ALL)
        next_one = ControlFile(later, PATH)
        assert next_one.state.epoch == 2
        later.crash_after(1 + seed % 2, part=0.5)
        with pytest.raises(SimCrash):
            next_one.write(state(epoch=4))
        assert control.read(later.crash(mixed(seed)), PATH)[1].epoch in (2, 4)


def test_row_42_a_control_file_that_is_missing_or_wholly_damaged_is_named() -> None:
    disk = SimDisk()
    with pytest.raises(LogDamaged, match="is missing") as caught:
        control.read(disk, PATH)
    assert caught.value.path == PATH
    for content in (b"", b"x" * 100, bytes(2 * COPY_BYTES)):
        disk.poke(PATH, content)
        with pytest.raises(LogDamaged, match="no whole copy"):
            control.read(disk, PATH)
