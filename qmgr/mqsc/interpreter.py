"""Runs statements against a queue manager: one method for each command. What it can't do it refuses in a sentence."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from logger.config import LogType
from logger.errors import LogError
from qmgr import authority
from qmgr.errors import AlreadyExists, MediaNotSupported, Mistake, MQError, UnknownQueue
from qmgr.infos import QueueInfo
from qmgr.mqsc import answers, display, grammar
from qmgr.mqsc.answers import Answer, Refused, records, said
from qmgr.mqsc.display import Fields
from qmgr.mqsc.syntax import Statement
from qmgr.mqsc.where import fits
from qmgr.objects import AliasDefinition

if TYPE_CHECKING:
    from qmgr.manager import QueueManager


MAX_TRIES = 20  # to define or alter what others delete and define


class Interpreter:
    """Runs statements, one after the other."""

    def __init__(self, manager: "QueueManager") -> None:
        self._manager = manager
        self._methods: Mapping[str, Callable[[Statement], Answer]] = {
            "DEFINE QLOCAL": self._define_queue,
            "DEFINE QALIAS": self._define_alias,
            "ALTER QLOCAL": self._alter_queue,
            "ALTER QALIAS": self._alter_alias,
            "ALTER QMGR": self._alter_manager,
            "DELETE QLOCAL": self._delete_queue,
            "DELETE QALIAS": self._delete_alias,
            "CLEAR QLOCAL": self._clear,
            "DISPLAY QLOCAL": self._display_queues,
            "DISPLAY QALIAS": self._display_queues,
            "DISPLAY QUEUE": self._display_queues,
            **dict.fromkeys([f"DISPLAY {kind}" for kind in grammar.OTHER_QUEUES], self._display_queues),
            "DISPLAY QSTATUS": self._display_queue_status,
            "DISPLAY QMGR": self._display_manager,
            "DISPLAY QMSTATUS": self._display_status,
            "DISPLAY CONN": self._display_connections,
            "RESET QMGR": self._reset,
            "SET LOG": self._set_log,
            "PING QMGR": self._ping,
            "REFRESH SECURITY": self._refresh_rights,
            "STOP CONN": self._stop_connection,
            "SET AUTHREC": self._set_rights,
            "DELETE AUTHREC": self._delete_rights,
            "DISPLAY AUTHREC": self._display_rights,
        }

    def run(self, statement: Statement) -> Answer:
        """Do what it says. Whatever goes wrong with it is its answer."""
        try:
            return self._methods[statement.row.words](statement)
        except Refused as exc:
            return Answer((str(exc),), done=False)
        except MediaNotSupported as exc:
            return Answer((f"{answers.LINEAR_ONLY}: {exc}",), done=False)
        except MQError as exc:
            return Answer((answers.refusal(exc),), done=False)
        except (LogError, OSError) as exc:
            return Answer((f"{answers.OTHER}: {' '.join(str(exc).split())}",), done=False)

    # ---- local queues

    def _define_queue(self, statement: Statement) -> Answer:
        table = grammar.QLOCAL
        settings = _python(statement, table)
        like = statement.options.get("LIKE")
        base = _attributes(self._local(like), table) if like else grammar.defaults(table)
        if self._is_alias(statement.name):
            raise Refused(answers.OTHER_TYPE, f"Object {statement.name} exists, and is an alias queue.")
        self._define(statement, self._manager.define_queue, self._manager.alter_queue, base | settings)
        return _done(statement, table, "AMQ8006I", "Queue created.")

    def _define(
        self,
        statement: Statement,
        define: Callable[..., object],
        alter: Callable[..., object],
        attributes: dict[str, Any],
    ) -> None:
        """Define an object; REPLACE alters the one that is there, unless somebody deletes it at this moment."""
        for _ in range(MAX_TRIES):
            try:
                define(statement.name, **attributes)
                return
            except AlreadyExists:
                if "REPLACE" not in statement.options:
                    raise
            with contextlib.suppress(UnknownQueue):
                alter(statement.name, **attributes)
                return
        raise Refused(answers.IN_USE, f"Object {statement.name} is being defined and deleted by others all the time.")

    def _alter_queue(self, statement: Statement) -> Answer:
        return self._altered(statement, grammar.QLOCAL, self._local, self._manager.alter_queue)

    def _altered(
        self, statement: Statement, table: grammar.Table, find: Callable[[str], object], alter: Callable[..., object]
    ) -> Answer:
        settings = _python(statement, table)
        find(statement.name)
        if settings:
            alter(statement.name, **settings)
        return _done(statement, table, "AMQ8008I", "Queue changed.")

    def _delete_queue(self, statement: Statement) -> Answer:
        delete = partial(self._manager.delete_queue, purge="PURGE" in statement.options)
        return self._deleted(statement, self._local, delete)

    def _deleted(self, statement: Statement, find: Callable[[str], object], delete: Callable[[str], None]) -> Answer:
        """Delete an object, and the rights that were given on just that."""
        try:
            find(statement.name)
            delete(statement.name)
        except (UnknownQueue, Refused) as exc:
            missing = isinstance(exc, UnknownQueue) or exc.number == answers.NOT_FOUND
            if not missing or not statement.options.get("IGNSTATE"):
                raise
        again = authority.is_there(self._manager, statement.name)  # somebody else has defined one meanwhile
        if statement.options.get("AUTHREC", True) and not again:
            for grant in self._manager.attributes.authorities:
                if grant.profile == statement.name:
                    with contextlib.suppress(Mistake):  # somebody else was faster
                        self._manager.unauthorize(grant.user, grant.profile)
        return said("AMQ8007I", "Queue deleted.")

    def _clear(self, statement: Statement) -> Answer:
        self._local(statement.name)
        self._manager.clear_queue(statement.name)
        return said("AMQ8022I", "Queue cleared.")

    def _local(self, name: str) -> QueueInfo:
        """The local queue of this name, damaged or not."""
        if self._is_alias(name):
            raise Refused(answers.OTHER_TYPE, f"Object {name} is an alias queue, not a local one.")
        return self._manager.queue(name)

    def _locals(self, name: str) -> list[QueueInfo]:
        """The local queues that a name means, which may be generic."""
        if name.endswith("*"):
            return [info for info in self._manager.queues() if fits(info.name, name)]
        try:
            found = self._manager.queue(name)
        except Mistake:
            return []
        return [found] if found.name == name else []  # else the name is an alias of that

    # ---- alias queues

    def _define_alias(self, statement: Statement) -> Answer:
        table = grammar.QALIAS
        settings = _python(statement, table)
        like = statement.options.get("LIKE")
        base = _attributes(self._alias(like), table) if like else grammar.defaults(table)
        if self._locals(statement.name):
            raise Refused(answers.OTHER_TYPE, f"Object {statement.name} exists, and is a local queue.")
        self._define(statement, self._manager.define_alias, self._manager.alter_alias, base | settings)
        return _done(statement, table, "AMQ8006I", "Queue created.")

    def _alter_alias(self, statement: Statement) -> Answer:
        return self._altered(statement, grammar.QALIAS, self._alias, self._manager.alter_alias)

    def _delete_alias(self, statement: Statement) -> Answer:
        return self._deleted(statement, self._alias, self._manager.delete_alias)

    def _is_alias(self, name: str) -> bool:
        return any(alias.name == name for alias in self._manager.aliases())

    def _alias(self, name: str) -> AliasDefinition:
        found = next((alias for alias in self._manager.aliases() if alias.name == name), None)
        if found is None:
            if self._locals(name):
                raise Refused(answers.OTHER_TYPE, f"Object {name} exists, and is a local queue.")
            raise answers.not_found(name)
        return found

    # ---- the queue manager

    def _alter_manager(self, statement: Statement) -> Answer:
        settings = _python(statement, grammar.QMGR)
        if settings.get("logger_events") and self._manager.config.log.log_type is not LogType.LINEAR:
            raise Refused(answers.LINEAR_ONLY, "LOGGEREV(ENABLED) is for linear logging only, and the log is circular.")
        self._check()
        if settings:
            self._manager.alter(**settings)
        return _done(statement, grammar.QMGR, "AMQ8005I", "Queue manager changed.")

    def _reset(self, statement: Statement) -> Answer:
        match statement.options["TYPE"]:
            case "ADVANCELOG":
                return said("AMQ9054I", f"The log goes on in {self._manager.advance_log()}.")
            case "ARCHLOG":
                return self._note_archived(statement.options["ARCHIVED"], all_before=True)
            case _:
                how = statement.options.get("REDUCE", "AUTO")
                gone = self._manager.reduce_log(how)
                if not gone and how not in ("AUTO", "MAX"):
                    raise Refused("AMQ9055E", "No log extent was removed: each is needed, or is a primary one.")
                return said("AMQ9055I", f"{gone} log extents were removed.")

    def _set_log(self, statement: Statement) -> Answer:
        return self._note_archived(statement.options["ARCHIVED"], all_before=False)

    def _note_archived(self, extent: str, *, all_before: bool) -> Answer:
        self._manager.note_archived(extent, all_before=all_before)
        which = f"All log extents up to {extent}" if all_before else f"Log extent {extent}"
        return said("AMQ9056I", f"{which} noted as archived.")

    def _ping(self, statement: Statement) -> Answer:
        self._check()
        return said("AMQ8415I", "Ping Queue Manager command complete.")

    def _stop_connection(self, statement: Statement) -> Answer:
        name = statement.name.upper()
        found = [one.number for one in self._manager.connections() if display.connection_name(one.number) == name]
        external = statement.options.get("EXTCONN", display.external_name(self._manager)).upper()
        if not found or external != display.external_name(self._manager):
            raise Refused(answers.NO_CONNECTION, "Connection identifier not found.")
        try:
            self._manager.stop_connection(found[0], quiesce=statement.options.get("MODE") == "QUIESCE")
        except Mistake as exc:  # it is that of the queue manager's own process, or has just ended
            raise Refused(answers.NO_CONNECTION, f"Connection identifier not found: {exc.sentence}.") from exc
        return said("AMQ8457I", "Connection stopped.")

    def _check(self) -> None:
        """Raises Unavailable when the queue manager has ended, or has stopped."""
        self._manager.status()

    # ---- rights

    def _set_rights(self, statement: Statement) -> Answer:
        options = statement.options
        add, remove = options.get("AUTHADD", ()), options.get("AUTHRMV", ())
        if not add and not remove:
            raise Refused(answers.NEEDED, "SET AUTHREC needs AUTHADD, AUTHRMV or both.")
        profile = _profile(statement)
        try:
            authority.words([*add, *remove], authority.QUEUE if profile else authority.QMGR)
        except Mistake as exc:  # a right that is not one there
            raise Refused(answers.NEEDED, f"{exc.sentence}.") from exc
        if add and not authority.is_there(self._manager, profile):
            raise answers.not_found(profile, "rights on one queue are given when it is there")
        self._manager.authorize(options["PRINCIPAL"], profile, add=add, remove=remove)
        return said("AMQ8862I", "Authority record set.")

    def _refresh_rights(self, statement: Statement) -> Answer:
        """There is nothing to refresh: rights count as soon as they are set."""
        self._check()
        return said("AMQ8560I", "Security cache refreshed.")

    def _delete_rights(self, statement: Statement) -> Answer:
        try:
            self._manager.unauthorize(statement.options["PRINCIPAL"], _profile(statement))
        except Mistake as exc:
            raise Refused(answers.NO_RIGHTS, "Authority record not found.") from exc
        return said("AMQ8863I", "Authority record deleted.")

    def _display_rights(self, statement: Statement) -> Answer:
        options = statement.options
        wanted = {"OBJTYPE": options.get("OBJTYPE"), "ENTITY": options.get("PRINCIPAL")}
        found = [display.grant(one) for one in self._manager.attributes.authorities]
        found = [one for one in found if all(value in (None, one[word]) for word, value in wanted.items())]
        if (profile := options.get("PROFILE")) is not None:
            exact = options.get("MATCH") == "EXACT" or authority.is_generic(profile)
            found = [one for one in found if one["PROFILE"] == profile or (not exact and _fits(one, profile))]
        shown = _shown(statement, display.AUTHREC, ("PROFILE", "ENTITY", "ENTTYPE", "OBJTYPE"), found)
        if not shown:
            raise Refused(answers.NO_RIGHTS, "Authority record not found.")
        return records(shown)

    # ---- DISPLAY

    def _display_queues(self, statement: Statement) -> Answer:
        kind = statement.row.object
        if kind == "QUEUE":
            kind = statement.options.get("TYPE", "ALL")
        if kind in grammar.OTHER_QUEUES:
            self._check()
        found: list[Fields] = []
        damage = []
        if kind in ("QLOCAL", "ALL"):
            for info in self._locals(statement.name):
                found.append(display.queue(info))
                damage += _damage(info)
        if kind in ("QALIAS", "ALL"):
            aliases = self._manager.aliases()
            found += [display.alias(alias) for alias in aliases if fits(alias.name, statement.name)]
        found.sort(key=lambda fields: fields["QUEUE"])
        shown = _shown(statement, display.QUEUE, ("QUEUE", "TYPE"), found, sort=True)
        if not shown:
            raise answers.not_found(statement.name)
        return records([*damage, *shown], done=not damage)

    def _display_queue_status(self, statement: Statement) -> Answer:
        first = ("QUEUE", "TYPE")
        if statement.options.get("TYPE") == "HANDLE":
            used = [fields for fields in display.handles(self._manager) if fits(fields["QUEUE"], statement.name)]
            shown = _shown(statement, display.QSTATUS, first, used, sort=True)
            if not shown:
                raise Refused(answers.NO_STATUS, "Queue Status not found.")
            return records(shown)
        infos = self._locals(statement.name)
        if not infos:
            raise answers.not_found(statement.name)
        found = [display.queue_status(info, display.media(self._manager, info.name)) for info in infos]
        more = grammar.MONITOR if "MONITOR" in statement.options else ()
        shown = _shown(statement, display.QSTATUS, first, found, always=("CURDEPTH",), more=more)
        if not shown:
            raise Refused(answers.NO_STATUS, "Queue Status not found.")
        damage = [line for info in infos for line in _damage(info)]
        return records([*damage, *shown], done=not damage)

    def _display_manager(self, statement: Statement) -> Answer:
        found = [display.queue_manager(self._manager)]
        more = tuple(
            word for group, words in grammar.QMGR_GROUPS.items() if group in statement.options for word in words
        )
        shown = _shown(statement, display.QMGR, ("QMNAME",), found, more=more, sort=True)
        return records(shown) if shown else Answer((str(answers.not_found(self._manager.name)),), done=False)

    def _display_status(self, statement: Statement) -> Answer:
        found = display.queue_manager_status(self._manager)
        log = grammar.LOG_SHOWS if "LOG" in statement.options else ()
        shown = _shown(statement, display.QMSTATUS, ("QMNAME", "TYPE"), [found], more=log)
        return records(shown) if shown else Answer((str(answers.not_found(self._manager.name)),), done=False)

    def _display_connections(self, statement: Statement) -> Answer:
        name = statement.name.upper()
        kind = statement.options.get("TYPE", "CONN")
        found = [*display.connections(self._manager)] if kind != "HANDLE" else []
        found += display.connection_handles(self._manager) if kind != "CONN" else ()
        found = sorted((fields for fields in found if fits(fields["CONN"], name)), key=lambda fields: fields["CONN"])
        shown = _shown(statement, display.CONN, ("CONN", "TYPE"), found, always=statement.row.shows)
        if not shown:
            raise Refused(answers.NO_CONNECTION, "Connection identifier not found.")
        return records(shown)


def _damage(info: QueueInfo) -> list[str]:
    """The line that a damaged queue gets: its depth alone would not tell it from an empty one."""
    return [f"AMQ8149E: Object {info.name} damaged: {info.damaged}"] if info.damaged else []


def _fits(grant: Fields, queue: str) -> bool:
    """Does the grant cover this queue?"""
    return grant["OBJTYPE"] == "QUEUE" and authority.pattern(grant["PROFILE"]).fullmatch(queue) is not None


def _profile(statement: Statement) -> str:
    """The queues that rights are on; "" where they are on the queue manager."""
    profile = statement.options.get("PROFILE")
    if statement.options["OBJTYPE"] == "QMGR":
        if profile not in (None, "SELF"):
            raise Refused(answers.NEEDED, "OBJTYPE(QMGR) goes with PROFILE(SELF), or with none.")
        return ""
    if profile is None:
        raise Refused(answers.NEEDED, "OBJTYPE(QUEUE) needs PROFILE(queues).")
    return str(profile)


# ---- attributes


def _python(statement: Statement, table: grammar.Table) -> dict[str, Any]:
    """What is to be set, by its names in Python. Raises Refused for a value that would be an empty promise."""
    for word, value in statement.settings.items():
        row = table[word]
        if not row.python and not row.any_value and value != row.default:
            default, asked = row.value.show(row.default), row.value.show(value)
            shown = (default, asked) if row.opposite else (f"{word}({default})", f"{word}({asked})")
            raise Refused(answers.NO_EFFECT, f"{shown[1]} has no effect here; only {shown[0]} is accepted.")
    settings = {table[word].python: value for word, value in statement.settings.items() if table[word].python}
    try:
        return _custom(statement, table) | settings
    except ValueError as exc:
        raise Refused(answers.NEEDED, f"CAPEXPRY of CUSTOM is {exc}.") from None


def _custom(statement: Statement, table: grammar.Table) -> dict[str, Any]:
    """What CUSTOM says that is to be set. Raises ValueError."""
    return grammar.custom(statement.settings.get("CUSTOM", "")) if table is grammar.QLOCAL else {}


def _attributes(definition: object, table: grammar.Table) -> dict[str, Any]:
    """The attributes of an object that LIKE names."""
    return {row.python: getattr(definition, row.python) for row in table.values() if row.python}


def _done(statement: Statement, table: grammar.Table, number: str, text: str) -> Answer:
    """The answer to a command that was done, with the attributes that have no effect."""
    return said(number, text, *_without_effect(statement, table))


def _without_effect(statement: Statement, table: grammar.Table) -> list[str]:
    idle = [
        table[word].value.show(value) if table[word].opposite else word
        for word, value in statement.settings.items()
        if not table[word].python
        and value != table[word].default
        and not (word == "CUSTOM" and _custom(statement, table))
    ]
    return [f"AMQ9052I: Accepted and without effect here: {', '.join(idle)}."] if idle else []


def foreseen(statement: Statement) -> Answer:
    """What every queue manager would answer: which attributes have no effect, and which it refuses for that."""
    table = statement.row.settings
    try:
        _python(statement, table)
    except Refused as exc:
        return Answer((str(exc),), done=False)
    return Answer(tuple(_without_effect(statement, table)))


# ---- what is shown


def _shown(
    statement: Statement,
    heading: str,
    first: tuple[str, ...],
    found: Iterable[Fields],
    *,
    always: tuple[str, ...] = (),
    more: tuple[str, ...] = (),
    sort: bool = False,
) -> list[str]:
    """The lines of the objects that the WHERE lets through.

    Shown are the attributes that were asked for; else all of an object that was named, and `always` of those that a
    generic name means. `more`: attributes that a keyword stands for. `sort`: by name, as IBM MQ shows definitions.
    """
    where = statement.where
    asked = (*more, *(word for word in statement.asked if word not in more))
    if statement.everything or not asked:
        generic = statement.name.endswith("*") and not statement.everything
        asked = always if generic else statement.row.shows
    if where is not None and where.attribute not in asked:
        asked = (*asked, where.attribute)
    if sort:
        asked = tuple(sorted(asked))
    lines: list[str] = []
    for fields in found:
        if where is None or (where.attribute in fields and where.holds(fields)):
            lines += display.lines(heading, first, fields, asked)
    return lines
