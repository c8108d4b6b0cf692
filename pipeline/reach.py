"""Reach: which queue manager and queue the options of `qmgr.queue` name, and how any process of Spark gets there."""

from collections.abc import Mapping

import attrs

from pipeline.paths import local
from qmgr import Connection, Mistake, connect, locations
from qmgr.objects import check_name

IDENTITY = ("user", "password", "ca", "certificate", "key")
OPTIONS = ("qmgr", "dataPath", "url", "queue", *IDENTITY)
MAX_NUMBER_CHARS = 40  # and so much of a text is shown
OF_SPARK = ("checkpointLocation", "queryName")  # which Spark hands on to a sink too


@attrs.frozen(kw_only=True)
class Reach:
    """Can be sent to other processes. `data_path` is absolute: what it is by default is decided where this is made."""

    name_or_url: str
    data_path: str | None = None  # None: by a URL
    queue: str = ""
    user: str = ""
    password: str = attrs.field(default="", repr=False)
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def connect(self, application: str) -> Connection:
        """To the daemon, or to the process that shares the queue manager. Raises Unavailable, NotAuthorized."""
        identity = {word: getattr(self, word) for word in IDENTITY}
        return connect(self.name_or_url, data_path=self.data_path, application=application, **identity)


def refuse_unknown(options: Mapping[str, str], *more: str) -> None:
    """Raise Mistake for an option that is neither one of `reach` nor one of `more`.

    A name that was written wrong would else pass for one that was left out, such as the one by which a job is known.
    """
    known = {name.lower() for name in (*OPTIONS, *more, *OF_SPARK)}
    for name in options:
        if name.lower() not in known:
            raise Mistake(f"qmgr.queue has no option {name!r} here; it has {', '.join((*OPTIONS, *more))}")


def reach(options: Mapping[str, str], *, needs_queue: bool = True) -> Reach:
    """What the options say. Raises Mistake, NameError_."""
    given = lowered(options)
    name, url, queue = (given.get(word, "") for word in ("qmgr", "url", "queue"))
    if bool(name) == bool(url):
        both = "both are given" if name else "neither is given"
        raise Mistake(f"option qmgr names a queue manager of this machine, or option url one anywhere; {both}")
    if queue:
        check_name(queue, "queue")
    elif needs_queue:
        raise Mistake("option queue is missing: name the queue")
    identity = {word: given[word] for word in IDENTITY if given.get(word)}
    if url:
        if "://" not in url:
            raise Mistake(f"option url is {url!r}; write qmgr://host:port/QM1, or qmgrs:// for TLS")
        return Reach(name_or_url=url, queue=queue, **identity)
    path = given.get("datapath")  # an empty one is refused: elsewhere may be another queue manager of this name
    root = locations.find(name, None if path is None else local(path)).data_root
    return Reach(name_or_url=name, data_path=root, queue=queue, **identity)


def lowered(options: Mapping[str, str]) -> dict[str, str]:
    """Options by their names in lower case: to Spark they are case-insensitive."""
    return {name.lower(): value for name, value in options.items()}


def seconds(options: Mapping[str, str], name: str, default: float) -> float:
    """An option that is a number of seconds. Raises Mistake."""
    given = lowered(options).get(name.lower())
    try:
        value = default if given is None else float(given)
        if not 0 <= value < float("inf"):
            raise ValueError
    except ValueError:
        raise Mistake(f"option {name} is {given!r}; it is a number of seconds, 0 or more") from None
    return value


def whole(options: Mapping[str, str], name: str, default: int) -> int:
    """An option that is a whole number, 0 or more. Raises Mistake."""
    given = lowered(options).get(name.lower())
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) < MAX_NUMBER_CHARS):
        raise Mistake(f"option {name} is {given[:MAX_NUMBER_CHARS]!r}; it is a whole number, 0 or more")
    return int(given)
