"""The Log stanza as a class: defaults, ranges and what follows from them."""

from typing import Any

import pytest

from logger.config import LogConfig, LogSync, LogType, WriteIntegrity


def test_defaults_are_those_of_mq() -> None:
    config = LogConfig(path="/log")
    assert (config.primary_files, config.secondary_files, config.file_pages) == (3, 2, 4096)
    assert (config.log_type, config.write_integrity, config.sync) == (
        LogType.CIRCULAR, WriteIntegrity.TRIPLE, LogSync.ALWAYS,
    )  # fmt: skip
    assert config.extent_bytes == 16 << 20
    assert config.max_files == 5
    assert config.buffer_bytes == 2 << 20


@pytest.mark.parametrize(("given", "used"), [(0, 512), (1, 18), (17, 18), (18, 18), (4096, 4096)])
def test_buffer_pages(given: int, used: int) -> None:
    assert LogConfig(path="/log", buffer_pages=given).buffer_bytes == used * 4096


@pytest.mark.parametrize(
    "wrong",
    [
        {"primary_files": 1},
        {"primary_files": 511},
        {"secondary_files": 0},
        {"secondary_files": 510},
        {"primary_files": 500, "secondary_files": 12},
        {"file_pages": 63},
        {"file_pages": 65536},
        {"buffer_pages": -1},
        {"buffer_pages": 4097},
        {"sync_interval_ms": 0},
        {"primary_files": 3.0},
        {"primary_files": True},
    ],
    ids=str,
)
def test_what_is_out_of_range_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="|".join(wrong)):
        LogConfig(path="/log", **wrong)


def test_the_largest_log() -> None:
    assert LogConfig(path="/log", primary_files=510, secondary_files=1, file_pages=65535).max_files == 511
