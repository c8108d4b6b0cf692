"""The stream of the log for Spark 4.2 and newer: so many bytes in a batch, and an end with `availableNow`."""

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from pipeline.log_options import Asked
from pipeline.log_stream import LogStream, Offset
from pipeline.unusable import with_way_out


class LimitedLogStream(LogStream, SupportsTriggerAvailableNow):
    """Spark says where a batch begins and how many bytes it may have, and hears where it ends."""

    def __init__(self, options: Asked, target: pa.Schema) -> None:
        super().__init__(options, target)
        self._last: int | None = None  # where the query ends, when it is to end with what is there

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self.asked.max_bytes is None else ReadMaxBytes(self.asked.max_bytes)

    @with_way_out()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        at = self.lsn(start)
        if self.first_is_empty and at == self.first_lsn:
            self.first_is_empty = False
            return self.offset_with_time(at, first=True)
        if self._last is not None and at >= self._last:
            self.refuse_gone(at)
            self.refuse_older(at, self._last)
            return start
        end = self.next_end(at, limit.max_bytes if isinstance(limit, ReadMaxBytes) else None, self._last)
        if end == at:
            self._reported = start
        return self.offset_with_time(end, at, first=at == self.first_lsn)

    def reportLatestOffset(self) -> Offset | None:
        if self._reported is not None and self._reported["lsn"] == self.known_end:
            return self._reported
        return None if self.known_end is None else self.offset(self.known_end)

    @with_way_out()
    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self.known_end = self.log().end()
