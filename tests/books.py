"""What the threads of `kill_worker` were told, line by line, and whether what the next worker finds agrees with it."""

import copy
import json
from typing import Any

from tests.model import Model, Msg


class Book:
    """What the worker of one thread was told, and the one call that it was in when it died."""

    def __init__(self, thread: int) -> None:
        self.model = Model()
        self.model.define(f"T{thread}.A")
        self.model.define(f"T{thread}.B")
        self.trying: dict[str, Any] | None = None

    @staticmethod
    def apply(model: Model, call: dict[str, Any]) -> Model:
        """The model after this call, which it changes."""
        if "resolve" in call:
            model.commit(call["resolve"])
            return model
        unit = call.get("prepare")
        if "get" in call:
            model.get(call["get"], model.find(call["get"]))
            return model
        if unit is not None:
            model.begin(unit)
        for queue, number in call.get("gets", ()):
            model.get(queue, [msg for msg in model.find(queue, 1 << 60) if msg.body == b"%d" % number], unit)
        for queue, number, priority in call.get("puts", ()):
            model.put(queue, [Msg(b"%d" % number, priority, True, b"")], unit)
        if unit is not None:
            model.units[unit].prepared = True
        return model

    def hear(self, line: dict[str, Any]) -> None:
        if line["do"] == "try":
            self.trying = line
        elif line["do"] == "done" and self.trying is not None:
            self.apply(self.model, self.trying)
            self.trying = None
        elif line["do"] == "none":
            assert self.trying is not None
            assert not self.model.find(self.trying["get"]), "a queue was said to be empty"
            self.trying = None

    def allowed(self) -> list[Model]:
        return [self.model] if self.trying is None else [self.model, self.apply(self.model.copy(), self.trying)]

    def xids_of_call(self) -> set[str]:
        """What may be in doubt because of the call that did not return."""
        trying = self.trying or {}
        return {trying[what] for what in ("prepare", "resolve") if what in trying}


class Books:
    """Those of all threads of one worker after the other."""

    def __init__(self, threads: int) -> None:
        self.books = [Book(n) for n in range(threads)]
        self.acknowledged = 0
        self.resolving = False  # a worker has said what is in doubt, resolves that, and has not said "begin" yet
        self._found: dict[str, dict[str, list[int]]] = {"found": {}, "resolved": {}}
        self._in_doubt: set[str] = set()

    def copy(self) -> "Books":
        return copy.deepcopy(self)

    def hear(self, raw: bytes) -> str:
        """A line of a worker; what it is. Raises AssertionError where a worker has found what can't be."""
        line = json.loads(raw)
        do = str(line["do"])
        if do in self._found:
            self._found[do][line["queue"]] = line["bodies"]
        elif do == "in doubt":
            self._in_doubt = set(line["xids"])
            self.resolving = bool(self._in_doubt)
        elif do == "begin":
            self.resolving = False
            told = [self._compare(book) for book in self.books]
            assert self._in_doubt == set().union(*told)
        else:
            self.books[line["thread"]].hear(line)
            self.acknowledged += do == "done"
        return do

    def _compare(self, book: Book) -> set[str]:
        """What was found is the state after the last call that returned, or after the one that did not.

        Returns what was rightly in doubt.
        """
        found, in_doubt = self._found, self._in_doubt
        report = []
        for model in book.allowed():
            mine = {str(xid) for xid in model.in_doubt()}
            expected = {queue: [int(msg.body) for msg in model.find(queue, 1 << 60)] for queue in model.queues}
            wrong = {q: (bodies, found["found"][q]) for q, bodies in expected.items() if found["found"][q] != bodies}
            if wrong or not mine <= in_doubt or (book.xids_of_call() - mine) & in_doubt:
                report.append(f"{wrong} in doubt: expected {mine}, found {in_doubt}")
                continue
            for xid in mine:
                model.commit(xid)
            for queue in model.queues:
                assert [int(msg.body) for msg in model.find(queue, 1 << 60)] == found["resolved"][queue]
            book.model = model
            book.trying = None
            return mine
        raise AssertionError(f"(expected, found) is {' or '.join(report)}")
