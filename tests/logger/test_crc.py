"""The checksum: the same numbers, whichever package computes them."""

import subprocess
import sys
import zlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import qmgr
from logger.crc import crc32

WITHOUT = """
import os, sys
sys.modules["zlib_ng"] = None
import qmgr
qmgr.create("QM1", data_path=sys.argv[1])
qm = qmgr.start("QM1", data_path=sys.argv[1])
qm.define_queue("Q")
for number in range(20):
    qm.put("Q", b"%d" % number * 20_000)
assert "zlib_ng.zlib_ng" not in sys.modules
os._exit(0)
"""


@given(st.binary(max_size=300), st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_it_is_the_one_of_zlib(data: bytes, times: int, seed: int) -> None:
    data *= times
    assert crc32(memoryview(data), seed) == zlib.crc32(data, seed)
    assert crc32(data) == zlib.crc32(data)


def test_what_was_written_without_the_package_is_read_with_it(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", WITHOUT, str(tmp_path)], check=True, timeout=60)
    assert crc32.__module__ == "zlib_ng.zlib_ng", "the extra `dev` brings it"
    with qmgr.start("QM1", data_path=tmp_path) as qm:
        assert [message.body for message in qm.get_many("Q", 100)] == [b"%d" % n * 20_000 for n in range(20)]
