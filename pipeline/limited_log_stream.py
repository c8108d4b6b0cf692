"""The stream of the log for Spark 4.2 and newer: so many bytes in a batch, and an end with `availableNow`."""

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from pipeline.log_options import Asked
from pipeline.log_stream import LogStream, Offset


class LimitedLogStream(LogStream, SupportsTriggerAvailableNow):
    def __init__(self, options: Asked, target: pa.Schema) -> None:
        super().__init__(options, target)
        self._last: int | None = None  # where the query ends, when it is to end with what is there

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self.asked.max_bytes is None else ReadMaxBytes(self.asked.max_bytes)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        at = self.lsn(start)
        if self.first_is_empty and at == self.began:
            self.first_is_empty = False
            return self.reached(at, first=True)
        if self._last is not None and at >= self._last:
            self.refuse_gone(at)
            self.refuse_older(at, self._last)
            return start
        end = self.up_to(at, limit.max_bytes if isinstance(limit, ReadMaxBytes) else None, self._last)
        if end == at:
            self._told = start
        return self.reached(end, at, first=at == self.began)

    def reportLatestOffset(self) -> Offset | None:
        if self._told is not None and self._told["lsn"] == self.seen:
            return self._told
        return None if self.seen is None else self.offset(self.seen)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self.seen = self.log().end()
