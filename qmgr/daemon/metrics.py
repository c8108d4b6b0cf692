"""Metrics in Prometheus's text format, under the names that IBM MQ's collector gives them.

Metrics of that collector for what this queue manager does not count are left out.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from qmgr import qmstatus

if TYPE_CHECKING:
    from qmgr.manager import QueueManager

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PLATFORM = "UNIX"
RUNNING = 2  # MQQMSTA_RUNNING

Sample = tuple[str, str, str, dict[str, str], float]  # name, type, help, labels, value


class _Answer(Future[bytes]):
    """One that is made for all who ask before it is begun."""

    def __init__(self) -> None:
        super().__init__()
        self.maker = threading.Lock()  # held by who makes it


class Answers:
    """Makes one answer at a time, for all who wait: many who ask take no more of the processor than one. Thread-safe.

    Who gives up, and asks again, so finds no line of those that he gave up before him.
    """

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._next = _Answer()
        self._one_at_a_time = threading.Lock()

    def get(self) -> bytes:
        """One that was begun after this call. Raises what making it has raised."""
        ours, following = self._next, _Answer()  # here, where want of memory leaves nobody waiting for a maker
        if ours.maker.acquire(blocking=False):
            with self._one_at_a_time:
                self._next = following
                try:
                    ours.set_result(self._make())
                except BaseException as exc:
                    ours.set_exception(exc)
        return ours.result()


def exposition(manager: "QueueManager", connections: int) -> str:
    """The metrics as of now, as text; `connections`: clients that are connected."""
    picture, now = manager.picture(), manager._clock.wall_us()
    lines: list[str] = []
    named: set[str] = set()
    for name, kind, about, labels, value in sorted(_samples(picture, connections, now), key=lambda sample: sample[0]):
        if name not in named:
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            named.add(name)
        said = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        lines.append(f"{name}{{{said}}} {_number(value)}")
    return "\n".join(lines) + "\n"


def _samples(picture: Mapping[str, Any], connections: int, now: int) -> Iterator[Sample]:
    labels = {"qmgr": picture["name"], "platform": PLATFORM}
    for name, kind, about, value in (
        ("status", "gauge", "Queue manager status; 2: running", RUNNING if picture["state"] == "running" else 0),
        ("connection_count", "gauge", "Clients that are connected", connections),
        ("uptime", "gauge", "Seconds since the start", picture["uptime_us"] / 1e6),
        ("checkpoint_count", "counter", "Checkpoints since the start", picture["checkpoints"]),
        ("commit_count", "counter", "Units of work that were committed since the start", picture["committed"]),
        ("rollback_count", "counter", "Units of work that were backed out since the start", picture["backed_out"]),
        ("uncommitted_units_of_work", "gauge", "Units of work that have not ended", picture["units_of_work"]),
        *_of_log(picture["log"]),
        *_of_disks(picture["file_systems"]),
    ):
        if value is not None:
            yield f"ibmmq_qmgr_{name}", kind, about, labels, value
    for queue in picture["objects"]:
        of = labels | {"queue": queue["name"], "usage": "NORMAL"}
        for name, about, value in (
            ("depth", "Messages on the queue", queue["depth"]),
            ("attribute_max_depth", "MAXDEPTH", queue["max_depth"]),
            ("uncommitted_messages", "Messages of units of work that have not ended", queue["uncommitted"]),
            ("time_since_put", "Seconds since a message became visible last", _since(queue["last_put"], now)),
            ("time_since_get", "Seconds since a message was got for good last", _since(queue["last_get"], now)),
        ):
            if value is not None:
                yield f"ibmmq_queue_{name}", "gauge", about, of, value


def _since(moment: int, now: int) -> float | None:
    """Microseconds since 1970 as seconds ago; None for 0: nobody knows."""
    return max(0, now - moment) / 1e6 if moment else None


def _of_log(log: Mapping[str, Any]) -> list[tuple[str, str, str, float | None]]:
    writes, config, extents = log["writes"], log["config"], qmstatus.extent_numbers(log)
    primary = config["primary_files"] * log["extent_bytes"]
    peak = log.get("peak", log["used"])
    sizes, began = qmstatus.log_megabytes(log), qmstatus.log_began(log)
    return [
        ("log_in_use_bytes", "gauge", "Log that a restart needs", log["used"]),
        ("log_max_bytes", "gauge", "The most that the log can hold", log["capacity"]),
        ("log_current_primary_space_in_use_percentage", "gauge", "LOGINUSE", 100 * log["used"] / primary),
        ("log_workload_primary_space_utilization_percentage", "gauge", "LOGUTIL", 100 * peak / primary),
        ("log_write_latency_seconds", "gauge", "Mean of the last 64 writes", writes["write_time_short"] / 1e6),
        ("log_write_size_bytes", "gauge", "Mean of the last 64 writes", writes["write_size_short"]),
        ("log_physical_written_bytes", "counter", "As handed to the disk", writes["bytes_written"]),
        ("log_logical_written_bytes", "counter", "Of records", writes["bytes_logged"]),
        ("log_slowest_write_since_restart", "gauge", "Seconds", writes["write_time_max"] / 1e6),
        ("log_timestamp_of_slowest_write", "gauge", "Seconds since 1970", writes["write_time_max_at"] / 1e6),
        ("log_disk_written_log_sequence_number", "counter", "The log is on disk up to here", log["durable"]),
        ("log_required_for_media_recovery_bytes", "gauge", "MEDIASZ", log.get("media_bytes")),
        ("log_occupied_by_reusable_extents_bytes", "gauge", "REUSESZ", log.get("reuse_bytes")),
        ("log_occupied_by_extents_waiting_to_be_archived_bytes", "gauge", "ARCHSZ", log.get("archive_bytes")),
        ("log_extent_current", "gauge", "Number of the extent CURRLOG", extents.get("CURRLOG")),
        ("log_extent_restart", "gauge", "Number of the extent RECLOG", extents.get("RECLOG")),
        ("log_extent_media", "gauge", "Number of the extent MEDIALOG", extents.get("MEDIALOG")),
        ("log_extent_archive", "gauge", "Number of the extent ARCHLOG", extents.get("ARCHLOG")),
        ("log_size_restart", "gauge", "RECSZ, in MB", sizes["RECSZ"]),
        ("log_size_media", "gauge", "MEDIASZ, in MB", sizes["MEDIASZ"]),
        ("log_size_archive", "gauge", "ARCHSZ, in MB", sizes["ARCHSZ"]),
        ("log_size_reusable", "gauge", "REUSESZ, in MB", sizes["REUSESZ"]),
        ("log_start_epoch", "gauge", "LOGSTRDA and LOGSTRTI, in milliseconds since 1970", began and began // 1000),
    ]


def _of_disks(found: Mapping[str, Any]) -> list[tuple[str, str, str, float | None]]:
    samples: list[tuple[str, str, str, float | None]] = []
    for key, name in (("log", "log_file_system"), ("data", "queue_manager_file_system")):
        if found.get(key):
            free, total = found[key]
            samples += [
                (f"{name}_in_use_bytes", "gauge", "Of the file system", total - free),
                (f"{name}_max_bytes", "gauge", "Of the file system", total),
                (f"{name}_free_space_bytes", "gauge", "Of the file system", free),
                (f"{name}_free_space_percentage", "gauge", "Of the file system", 100 * free / total if total else 0),
            ]
    return samples


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return repr(float(value)) if isinstance(value, float) and not value.is_integer() else str(int(value))
