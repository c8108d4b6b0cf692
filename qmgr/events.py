"""Events: what happens to queues and to the queue manager, as messages that say it in JSON, as amqsevt prints them.

    SYSTEM.ADMIN.PERFM.EVENT     queue depth high 2224, queue depth low 2225, queue full 2053     PERFMEV, and QDP..EV
    SYSTEM.ADMIN.QMGR.EVENT      put inhibited 2051, get inhibited 2016                           INHIBTEV
                                 queue manager active 2222, not active 2223                       STRSTPEV
                                 not authorized 2035                                              AUTHOREV
    SYSTEM.ADMIN.LOGGER.EVENT    another extent is the current one, or the oldest needed 2411     LOGGEREV

An event of the depth is told once: it disarms itself, high arms low and full, low arms high and full, full arms low.
What is armed is forgotten at the end of the queue manager. Events are noted under the lock where they happen, and put
when the call that caused them is done; what can't be put is dropped, and no call ever fails for it.
"""

import datetime
import json
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import attrs

from qmgr.errors import Reason
from qmgr.objects import is_event_queue
from qmgr.queue import FULL, HIGH, LOW, Queue
from qmgr.state import State

PERFORMANCE, QUEUE_MANAGER, LOGGER = (
    "SYSTEM.ADMIN.PERFM.EVENT",
    "SYSTEM.ADMIN.QMGR.EVENT",
    "SYSTEM.ADMIN.LOGGER.EVENT",
)
TYPES = {PERFORMANCE: ("Perfm Event", 45), QUEUE_MANAGER: ("Queue Mgr Event", 44), LOGGER: ("Logger Event", 94)}
NAMES = {
    Reason.Q_DEPTH_HIGH: "Queue Depth High",
    Reason.Q_DEPTH_LOW: "Queue Depth Low",
    Reason.Q_FULL: "Queue Full",
    Reason.PUT_INHIBITED: "Put Inhibited",
    Reason.GET_INHIBITED: "Get Inhibited",
    Reason.Q_MGR_ACTIVE: "Queue Mgr Active",
    Reason.Q_MGR_NOT_ACTIVE: "Queue Mgr Not Active",
    Reason.NOT_AUTHORIZED: "Not Authorized",
    Reason.LOGGER_STATUS: "Logger Status",
}
QUEUES = {
    "performance_events": PERFORMANCE,
    "inhibit_events": QUEUE_MANAGER,
    "start_stop_events": QUEUE_MANAGER,
    "authority_events": QUEUE_MANAGER,
    "logger_events": LOGGER,
}  # attributes of the queue manager, and where what they switch on goes
ATTRIBUTES: dict[str, Any] = {
    "description": "Events of the queue manager",
    "default_persistence": False,
    "max_depth": 5000,
    "non_persistent_class": "HIGH",  # so the event that it has ended is there when it is started again
}  # of an event queue that the queue manager defines
MAX_PENDING = 1000  # events


@attrs.frozen
class Event:
    """Something that has happened."""

    queue: str  # where it is told
    reason: Reason
    data: dict[str, Any]

    def encode(self, manager: str, wall_us: int) -> bytes:
        name, number = TYPES[self.queue]
        at = datetime.datetime.fromtimestamp(wall_us / 1e6, datetime.UTC)
        said = {
            "eventSource": {"objectName": self.queue, "objectType": "Queue", "queueMgr": manager},
            "eventType": {"name": name, "value": number},
            "eventReason": {"name": NAMES[self.reason], "value": self.reason.value},
            "eventCreation": {"timeStamp": at.strftime("%Y-%m-%dT%H:%M:%SZ"), "epoch": wall_us // 1_000_000},
            "eventData": {"queueMgrName": manager} | self.data,
        }
        return json.dumps(said).encode()


class Events:
    """The events of one queue manager that are to be put. Its lock guards this."""

    def __init__(self, state: State, process: str, now_us: int) -> None:
        """`process` runs the queue manager."""
        self._state = state
        self._process = process
        self._began_us = now_us
        self._began = {queue.id: (queue.next_sequence, queue.depth) for queue in state.queues.values()}
        self.pending: deque[Event] = deque(maxlen=MAX_PENDING)
        self._extents: tuple[int, str, str] | None = None
        self.caller = threading.local()  # `name`: whose call a thread makes, where that is a client's

    def _note(self, queue: str, reason: Reason, **data: Any) -> None:
        if queue in self._state.queues:
            self.pending.append(Event(queue, reason, data))

    # ---- depth

    def rises(self, queue: Queue, count: int, now_us: int) -> None:
        """To be called before `count` messages are put."""
        if queue.armed & HIGH and queue.depth + count >= queue.high_mark:
            queue.arm(queue.armed & ~HIGH | LOW | FULL)
            self._depth(queue, Reason.Q_DEPTH_HIGH, count, now_us)

    def falls(self, queue: Queue, now_us: int) -> None:
        """To be called after messages were got."""
        if queue.armed & LOW and queue.depth <= queue.low_mark:
            queue.arm(queue.armed & ~LOW | HIGH | FULL)
            self._depth(queue, Reason.Q_DEPTH_LOW, 0, now_us)

    def is_full(self, queue: Queue, now_us: int) -> None:
        """A put was refused."""
        if queue.armed & FULL:
            queue.arm(queue.armed & ~FULL | LOW)
            self._depth(queue, Reason.Q_FULL, 0, now_us)

    def _depth(self, queue: Queue, reason: Reason, coming: int, now_us: int) -> None:
        """Counts are made of sequences and depths, so that no put or get has to count. `coming`: puts not done yet."""
        since, following_then, depth_then = queue.last_event or (self._began_us, *self._began.get(queue.id, (1, 0)))
        depth, following = queue.depth + coming, queue.next_sequence + coming
        queue.last_event = now_us, following, depth
        put = max(0, following - following_then)
        self._note(
            PERFORMANCE,
            reason,
            baseObjectName=queue.name,
            timeSinceReset=max(0, now_us - since) // 1_000_000,
            highQueueDepth=max(depth, depth_then),
            msgEnqCount=put,
            msgDeqCount=max(0, depth_then + put - depth),
        )

    # ---- the queue manager

    def inhibited(self, reason: Reason, name: str) -> None:
        """A put to, or a get from, a queue or an alias was refused."""
        if self._state.qmgr.inhibit_events and not is_event_queue(name):
            self._note(QUEUE_MANAGER, reason, queueName=name, applName=getattr(self.caller, "name", self._process))

    def active(self) -> None:
        if self._state.qmgr.start_stop_events:
            self._note(QUEUE_MANAGER, Reason.Q_MGR_ACTIVE)

    def not_active(self, how: str) -> None:
        """It ends; `how`: in order ("quiesce") or at once."""
        if self._state.qmgr.start_stop_events:
            qualifier = "Queue Mgr Quiescing" if how == "quiesce" else "Queue Mgr Stopping"
            self._note(QUEUE_MANAGER, Reason.Q_MGR_NOT_ACTIVE, reasonQualifier=qualifier)

    def not_authorized(self, user: str, verb: str, name: str) -> None:
        """A user was refused that; `name` of a queue, or "" for the queue manager."""
        if self._state.qmgr.authority_events:
            self._note(QUEUE_MANAGER, Reason.NOT_AUTHORIZED, userIdentifier=user, verb=verb, objectName=name)

    # ---- the log

    def extents(
        self, current: int, restart: str, media: str, archive: str | None, path: str, name: Callable[[int], str]
    ) -> None:
        """Note an event for each extent that became the current one since the last look, or one for any other change.

        `current`: its number, of which `name` makes the name. `restart`, `media`: names of the oldest extents that
        these need. `archive`: the oldest that waits to be reported as archived, "" where none does, None where none
        has to.
        """
        if self._extents != (current, restart, media):
            before = self._extents[0] if self._extents is not None else current
            self._extents = current, restart, media
            for number in range(max(min(before + 1, current), current - MAX_PENDING + 1), current + 1):
                extent = name(number)
                self._note(
                    LOGGER,
                    Reason.LOGGER_STATUS,
                    currentLogExtentName=extent,
                    restartLogExtentName=min(restart, extent),
                    mediaLogExtentName=min(media, extent),
                    **({} if archive is None else {"archiveLogExtentName": archive}),
                    logPath=path,
                )

    def skip_extents(self) -> None:
        """Nobody wants to hear of them now."""
        self._extents = None
