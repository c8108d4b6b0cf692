"""The process of a daemon: its main thread hears signals and says when a service starts and ends, others do the work.

*Operations*: SIGTERM and SIGINT ask for the end; each further one is a step more urgent: quiesce, immediate, kill.
SIGUSR2, SIGUSR1 and SIGQUIT ask for one of the three, however often they come. *Goals*: every one is heard at any
moment, also while a restart takes long or a disk hangs. *Plan*: the main thread never does what may take long. What it
has done goes to one thread that is there from the first moment on: to start another one takes memory, and where that
has run out Python may wait for ever for a thread that was never there.
"""

import _thread
import contextlib
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any, Protocol

import attrs

from logger import lsn
from qmgr.daemon.service import Service
from qmgr.daemon.systemd import Notifier
from qmgr.daemon.wakeups import Wakeups
from qmgr.errors import IniError
from qmgr.life import Stage
from qmgr.manager import QueueManager
from qmgr.threads import Thread, go_on, pause

NOTHING, QUIESCE, IMMEDIATE, KILL = range(4)
STEPS = {"quiesce": QUIESCE, "immediate": IMMEDIATE, "preemptive": KILL}

# What endmqm sends; a second one of the same says nothing new.
SIGNALS = {QUIESCE: signal.SIGUSR2, IMMEDIATE: signal.SIGUSR1, KILL: signal.SIGQUIT}
STEP_OF = {number: step for step, number in SIGNALS.items()}
ESCALATING = (signal.SIGTERM, signal.SIGINT)

POLL_S = 0.02  # between two looks whether units of work have ended
IDLE_POLLS = 2  # in a row that find nothing at work, before the end goes on
NOTIFY_RETRY_S = 0.1  # until the service manager may have room for a notification
EXTEND_EVERY_S = 5.0  # between two requests to the service manager for more time
SAY_KILLED_TIMEOUT_S = 0.5
KILLED_STATUS = 128 + signal.SIGKILL  # as a shell reports a process that SIGKILL ended
EXTENSION_US = 30_000_000  # that each such request asks for


class StartReporter(Protocol):
    """Who hears of the start: a terminal, or the command that waits for it."""

    def line(self, text: str) -> None:
        """A line about the start, for people."""

    def ready(self) -> None:
        """Clients may come."""


@attrs.frozen
class Done:
    """A task is over; `error`: what it has raised."""

    task: str
    error: BaseException | None = None


@attrs.frozen
class Asked:
    """Somebody asks for the end, at least this urgently."""

    step: int


@attrs.frozen
class Failed:
    """The queue manager has failed."""


class Daemon:
    """Runs one service. Made and run in the main thread of a process that does nothing else."""

    def __init__(self, service: Service, reporter: StartReporter, *, background: bool) -> None:
        hangup = () if background else (signal.SIGHUP,)
        if background:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._escalating = {*ESCALATING, *hangup}
        self._wakeups = Wakeups([*self._escalating, *STEP_OF])
        self._service = service
        service.on_end_asked = lambda mode: self._wakeups.say(Asked(STEPS[mode]))
        service.on_failure = lambda: self._wakeups.say(Failed())
        self._reporter = reporter
        self._notifier = Notifier()
        self._step = NOTHING
        self._failed = False
        self._done: dict[str, Done] = {}
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()  # None: there will be no more
        self._last_task = ""  # that the thread which is there from the first moment on was given

    def run(self) -> BaseException | None:
        """Start, serve, end; None after an end in order, or what went wrong."""
        try:
            return self._start() or self._serve() or self._end()
        finally:
            self._tasks.put(None)
            self._wakeups.close(deaf=True)  # the service has ended: no signal is to cut the end of the process short

    # ---- the three parts of its life

    def _start(self) -> BaseException | None:
        service = self._service
        self._notifier.say(STATUS=f"Queue manager {service.name}: starting")
        gc.disable()  # what a start makes stays; to scan it for cycles, again and again, takes a third of the time
        self._do("start", service.start)
        while "start" not in self._done:
            self._wait(EXTEND_EVERY_S)
            if self._step >= IMMEDIATE:  # the next start recovers what this one has not
                self._kill()
            self._notifier.say(EXTEND_TIMEOUT_USEC=EXTENSION_US)
        error = self._done["start"].error
        gc.freeze()  # nor is it scanned for cycles later
        gc.enable()
        if error is None:
            manager = service.manager
            for line in start_lines(manager, _outdated(service)):
                self._reporter.line(line)
            self._notifier.say(READY=1, STATUS=f"Queue manager {service.name}: {Stage.RUNNING}")
            self._reporter.ready()
        return error

    def _serve(self) -> BaseException | None:
        while self._step == NOTHING and not self._failed:
            self._wait(NOTIFY_RETRY_S if self._notifier.unsaid else None)
            if self._notifier.unsaid:
                go_on(self._notifier.say)
        return self._give_up() if self._failed else None

    def _end(self) -> BaseException | None:
        service = self._service
        self._notifier.say(STOPPING=1, STATUS=f"Queue manager {service.name}: {Stage.QUIESCING}")
        if self._step == QUIESCE:
            self._run_until("quiesce", service.quiesce, until=IMMEDIATE)
            idle = 0  # polls in a row; at the first the answer to the last commit may still be on its way
            while self._step < IMMEDIATE and not self._failed and idle < IDLE_POLLS:
                idle = 0 if service.busy else idle + 1
                self._wait(POLL_S)
        if self._failed:
            return self._give_up()
        at_once = self._step >= IMMEDIATE
        if at_once:
            self._notifier.say(STATUS=f"Queue manager {service.name}: {Stage.ENDING}")
        self._run_until("end", lambda: service.end(at_once=at_once), until=KILL)
        return self._done["end"].error

    def _give_up(self) -> BaseException:
        self._notifier.say(STOPPING=1, STATUS=f"Queue manager {self._service.name}: failed")
        why = self._service.manager.refusal
        self._run_until("abandon", self._service.abandon, until=KILL)
        return why or RuntimeError("the queue manager has failed")

    # ---- the main thread, and the others

    def _do(self, name: str, task: Callable[[], None]) -> None:
        """Have the task done by the thread that is there, or by another one where that is at work still."""

        error: BaseException | None = None

        def tell() -> None:
            self._wakeups.say(Done(name, error))

        def run() -> None:
            nonlocal error
            try:
                task()
            except BaseException as exc:
                error = exc
            go_on(tell)  # the main thread waits for that

        if not self._last_task:
            Thread(self._do_tasks, "qmgr tasks").start()
        elif self._last_task not in self._done:
            Thread(run, name).start()
            return
        self._last_task = name
        self._tasks.put(run)

    def _do_tasks(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def _run_until(self, name: str, task: Callable[[], None], *, until: int) -> None:
        """Do the task in a thread and wait for it, until somebody asks for step `until`: then it goes on by itself."""
        self._do(name, task)
        while name not in self._done and self._step < until:
            self._wait(EXTEND_EVERY_S)
            self._notifier.say(EXTEND_TIMEOUT_USEC=EXTENSION_US)

    def _wait(self, seconds: float | None) -> None:
        """Wait for a signal or a word, and note what it says; for want of memory the next call does."""
        try:
            words = self._wakeups.wait(seconds)
            while words:
                self._note(words[0])
                word = words.popleft()
                # A start that failed is told to who asked for it.
                if isinstance(word, Done) and word.error is not None and word.task != "start":
                    self._service.say("AMQ9021", text=str(word.error))
        except MemoryError:
            pause()
        if self._step >= KILL and "end" not in self._done:
            self._kill()

    def _note(self, word: Any) -> None:
        """What a word or a signal says. Whatever fails for want of memory comes before what it changes."""
        if isinstance(word, Done):
            self._done[word.task] = word
        elif isinstance(word, Asked):
            self._step = max(self._step, word.step)
        elif isinstance(word, Failed):
            self._failed = True
        elif word in self._escalating:
            self._step += 1
        else:
            self._step = max(self._step, STEP_OF.get(word, NOTHING))

    def _kill(self) -> None:
        """End as if killed: nothing is lost that was promised, the next start recovers."""
        said = threading.Event()

        def say() -> None:
            try:
                self._service.say_killed()
            finally:
                said.set()

        with contextlib.suppress(RuntimeError, MemoryError):
            _thread.start_new_thread(say, ())  # which does not wait for a thread's first step
            said.wait(SAY_KILLED_TIMEOUT_S)  # no longer: the disk may hang
        os.kill(os.getpid(), signal.SIGKILL)
        os._exit(KILLED_STATUS)  # for process 1 of a container: the kernel ignores a SIGKILL that it sends itself


def start_lines(manager: QueueManager, outdated: Iterable[str] = ()) -> list[str]:
    """What a restart has done, as people see it who start a queue manager; and which certificates are `outdated`."""
    name, report = manager.name, manager.restart_report
    lines = []
    if report.torn_tail:
        lines.append(f"Queue manager {name!r} had not ended in order: its log goes up to {lsn.text(report.end_lsn)}.")
    lines += [
        f"{report.records_replayed} log records accessed on queue manager {name!r} during the log replay phase.",
        f"Log replay for queue manager {name!r} complete.",
    ]
    if report.in_flight:
        lines += [
            f"{report.records_recovered} log records accessed on queue manager {name!r} during the recovery phase.",
            f"{report.resolved} out of {report.in_flight} in-flight transactions resolved for queue manager {name!r}.",
        ]
    damaged, away = sorted(manager.damaged().items()), manager.archive_away
    return [
        *lines,
        f"Transaction manager state recovered for queue manager {name!r}.",
        *(f"AMQ9004I: Object {queue}, type qlocal recreated: {what}." for queue, what in manager.recreated.items()),
        *(f"AMQ7472E: Object {queue}, type queue, is damaged: {why}" for queue, why in damaged),
        *([f"AMQ9014W: The archive of the log of queue manager {name!r} is away: {away}."] if away else []),
        *(f"AMQ9633W: Bad certificate: {text}." for text in outdated),
        f"Queue manager {name!r} started.",
    ]


def _outdated(service: Service) -> list[str]:
    """A sentence for each listener's certificate that is expired or not valid yet; the start goes on all the same."""
    with_tls = [config for config in service.manager.config.listeners if config.tls_certificate is not None]
    if not with_tls:
        return []
    from qmgr.daemon import tls  # the listeners have loaded it, and ssl with it; without them a daemon needs neither

    with contextlib.suppress(IniError):  # a file was taken away at this moment
        return [text for config in with_tls for text in tls.outdated(config, service.clock.wall_us())]
    return []
