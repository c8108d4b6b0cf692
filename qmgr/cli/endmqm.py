"""endmqm: end a queue manager that runs as a daemon.

It sends the daemon a signal, which is heard in any state, after it has made sure that the process is the one that has
the queue manager. A daemon in another container, whose process number means nothing here, is asked over a connection;
so is one whose note can't be read, as where it was the first one and had no room on the disk for it.
"""

import argparse
import contextlib
import os
import signal
from collections.abc import Callable, Iterator

import attrs

import qmgr
from logger.posix_lock import elsewhere
from qmgr import life, locations
from qmgr.cli import access
from qmgr.cli.access import CLOCK, DISK
from qmgr.cli.command import NOT_AUTHORISED, NOT_AVAILABLE, UNEXPECTED, Command, Failure, Parser, whole
from qmgr.daemon.process import IMMEDIATE, KILL, QUIESCE, SIGNALS
from qmgr.errors import Reason, Unavailable
from qmgr.life import Note, Stage
from qmgr.link import DEFAULT_TIMEOUT_S
from qmgr.locations import Location

UNKNOWN = 16
POLL_S = 0.02
GRACE_S = 2.0  # that an immediate end should take, and a kill
MAX_WAIT_S = 999_999
UNREAD = Note(stage=Stage.RUNNING, process=0, host="")  # in the place of a note that can't be read


def options(parser: Parser) -> None:
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("-c", action="store_true", help="quiesce and return at once (the default)")
    mode.add_argument("-w", action="store_true", help="quiesce, and wait until it has ended")
    mode.add_argument(
        "-i", action="store_true", help="end at once: calls that run finish, units of work are backed out"
    )
    mode.add_argument("-p", action="store_true", help="end the process as a kill would; the next start recovers")
    seconds = parser.add_mutually_exclusive_group()
    for option, text in (
        ("-t", "wait, and end at once shortly before so many seconds are over"),
        ("-tp", "the same, and as with -p if that does not help either"),
    ):
        seconds.add_argument(option, metavar="SEC", type=whole(option, 1, MAX_WAIT_S, parser.bad_arguments), help=text)
    parser.add_argument("-r", action="store_true", help="no effect: clients connect again by themselves")
    parser.add_argument("name", metavar="QMgrName", help="the queue manager")


def run(args: argparse.Namespace) -> int:
    location = locations.find(args.name, args.data_path)
    note = life.path(location)
    if not DISK.exists(note) or DISK.locked_by(note) is None:  # one that runs can be ended, whatever is missing
        access.known(args.name, args.data_path, code=UNKNOWN, amq="AMQ8118E")
    daemon, holder = daemon_of(location), locations.running(location, DISK) or ""
    ending = Ending(location, daemon, holder if holder.startswith("pid ") else "")
    if args.p:
        ending.kill()
    elif args.t or args.tp:
        ending.within(args.t or args.tp, IMMEDIATE if args.i else QUIESCE, kill=bool(args.tp))
    else:
        ending.ask(IMMEDIATE if args.i else QUIESCE)
        if not args.i and not args.w:
            print("Quiesce request accepted. The queue manager will end when all outstanding work is complete.")
            return 0
        print(f"Waiting for queue manager {args.name!r} to end.", flush=True)
        ending.wait(None)
    ending.report()
    return 0


def daemon_of(location: Location) -> Note:
    """The note of the daemon that has the queue manager, or UNREAD; ends the command where there is no daemon."""
    for _ in range(access.MAX_POLLS):  # in the moment in which it takes the lock it has not said anything yet
        if (note := life.daemon(DISK, location)) is not None:
            return note
        if DISK.locked_by(life.path(location)) is None:
            break
        access.pause(access.POLL_S)
    else:
        return UNREAD
    holder = locations.running(location, DISK)
    if holder is not None:
        text = f"queue manager {location.name!r} is no daemon: {holder} has started it with qmgr.start(); end it there."
        raise Failure(NOT_AVAILABLE, "AMQ8146E", text)
    raise Failure(NOT_AVAILABLE, "AMQ8146E", f"queue manager {location.name!r} is not running.")


@attrs.define
class Ending:
    """The end of one daemon, as seen from here."""

    location: Location
    note: Note
    holder: str = ""  # the process that qm.lock named at first
    connection: "qmgr.Connection | None" = None  # over which it was asked, so that no later one is

    @property
    def over(self) -> bool:
        """Whether this daemon has let go of the queue manager; another one may have it by now."""
        now = life.daemon(DISK, self.location)
        if now is None:
            return DISK.locked_by(life.path(self.location)) is None
        if self.note is UNREAD and self.holder.split()[:2] in ([], ["pid", str(now.process)]):
            self.note = now  # it can say now what it does
        if (now.process, now.host, now.numbers) != (self.note.process, self.note.host, self.note.numbers):
            return True
        if not self.note.epoch:  # it was starting
            self.note = now
        return now.epoch != self.note.epoch  # process 1 of a container is started again as process 1

    @property
    def here(self) -> bool:
        """Whether its process number means something here."""
        return not elsewhere(self.note.host, self.note.numbers)

    def ask(self, step: int, seconds: float = DEFAULT_TIMEOUT_S) -> None:
        """Ask for it by a signal, or over a connection, on which nothing may be heard for so many seconds at most."""
        if step == KILL or (self.here and self.connection is None):
            self._send(SIGNALS[step])
            return
        mode = "immediate" if step == IMMEDIATE else "quiesce"
        if self.connection is not None:  # of use still: a daemon that quiesces lets nobody else in
            with contextlib.suppress(Unavailable):  # it has closed the connection, and ends
                self.connection._ask_to_end(mode)
            return
        try:
            self.connection = qmgr.connect(self.location.name, data_path=self.location.data_root, timeout=seconds)
            self.connection._ask_to_end(mode)
        except Unavailable as exc:
            if exc.reason == Reason.Q_MGR_QUIESCING and step == QUIESCE:  # as it was asked to
                return
            if self.note is UNREAD:
                way = f", and it can't be asked over a connection ({exc}); end it with SIGTERM, else SIGKILL, to"
                raise self._unnamed(way) from exc
            raise

    def wait(self, seconds: float | None) -> bool:
        """Wait until it has ended, for so long at most; whether it has."""
        deadline = None if seconds is None else CLOCK.elapsed_ns() + int(seconds * 1e9)
        while not self.over:
            if deadline is not None and CLOCK.elapsed_ns() >= deadline:
                return False
            access.pause(POLL_S)
        return True

    def within(self, seconds: int, step: int, *, kill: bool) -> None:
        """End it within so many seconds: ask for `step`, then for an immediate end, and then with `kill` kill it.

        Without `kill`, ends the command if it has not ended by then.
        """
        grace = min(seconds / 4, GRACE_S)
        first = seconds - (2 * grace if kill else grace)
        self.ask(step, first)
        if self.wait(first):
            return
        self.ask(IMMEDIATE)
        if self.wait(grace):
            return
        if kill:
            self.kill()
            return
        text = (
            f"queue manager {self.location.name!r} has not ended in {seconds} seconds; it goes on ending, and endmqm -p"
        )
        raise Failure(UNEXPECTED, "AMQ8144E", f"{text} ends it like a kill.")

    def kill(self) -> None:
        """End its process, whatever it does. It may be stopped, or hang in the middle of a write."""
        if not self.here:
            self._send(SIGNALS[KILL])  # which refuses
        with contextlib.suppress(OSError):  # so that dspmq knows how it has ended
            now = life.daemon(DISK, self.location) or self.note
            life.write(DISK, self.location, attrs.evolve(now, stage=Stage.KILLING))
        self.ask(KILL)
        if not self.wait(GRACE_S / 2):
            self._send(signal.SIGKILL)
            self.wait(None)

    def report(self) -> None:
        """Say how it has ended."""
        note = life.last(DISK, self.location)
        if note is not None and note.process == (self.note.process or note.process) and note.stage is Stage.FAILED:
            why = f"queue manager {self.location.name!r} could not be ended in order; the next start recovers it"
            text = f"{note.why or why}. The error log may have more: {self.location.errors}."
            raise Failure(UNEXPECTED, "AMQ8144E", text)
        print(f"Queue manager {self.location.name!r} ended.")

    def _send(self, number: int) -> None:
        """Send the daemon a signal, and nobody else: its process number may be another's by now."""
        if self.note is UNREAD:
            raise self._unnamed("; kill")
        if not self.here:
            where = elsewhere(self.note.host, self.note.numbers)
            text = f"the process of queue manager {self.location.name!r} is{where}; kill it there."
            raise Failure(NOT_AVAILABLE, "AMQ8146E", text)
        with contextlib.suppress(ProcessLookupError), held(self.note.process) as send:
            if not self.over:
                try:
                    send(number)
                except PermissionError:
                    text = f"process {self.note.process} of queue manager {self.location.name!r} is another user's"
                    raise Failure(
                        NOT_AUTHORISED, "AMQ7077E", f"you are not authorised: {text}; be that user."
                    ) from None

    def _unnamed(self, way: str) -> Failure:
        text = f"queue manager {self.location.name!r} is a daemon, and {life.path(self.location)}, which names its"
        text += f" process, is empty or damaged{way} {self.holder or 'that process'}."
        return Failure(NOT_AVAILABLE, "AMQ8146E", text)


@contextlib.contextmanager
def held(process: int) -> Iterator[Callable[[int], None]]:
    """What sends signals to the process that has this number now; where there are pidfds, never to a later one.

    Raises ProcessLookupError.
    """
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):  # this system has no such thing
        yield lambda number: os.kill(process, number)
        return
    try:
        yield lambda number: signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


COMMAND = Command(
    name="endmqm",
    purpose="End a queue manager that runs as a daemon.",
    notes="""\
Quiescing refuses new connections and units of work (2161) and lets those in flight end; then all connections are
closed, and the queue manager ends. -t and -tp wait too, but not for ever: see below.""",
    usage="[-c | -w | -i | -p] [-t sec | -tp sec] [-r] [-z] [--data-path dir] QMgrName",
    elsewhere="-s -x",
    example="endmqm -w -tp 30 QM1",
    codes={UNKNOWN: "the queue manager does not exist", NOT_AVAILABLE: "the queue manager is not running as a daemon"},
    options=options,
    run=run,
    quiet=True,
)
