"""The tables of the language: commands, objects, and attributes with their values, defaults and names in Python.

An attribute is a line here and nothing anywhere else. Those of IBM MQ that have no effect here are listed too, so that
scripts which name them run: `idle` takes only the value that MQ has by default, since another one would be a promise
that nobody keeps; `harmless` takes any of its values, since nobody relies on them. Neither is stored. The default of
one is that of IBM MQ: whoever says something else is told that it has no effect.
"""

import enum
import re
from collections.abc import Mapping
from typing import Any

import attrs

from qmgr import authority
from qmgr.mqsc.values import Flag, Inherited, Name, OneOf, Pattern, Tenths, Text, Value, Whole, WholeOr, Words
from qmgr.objects import MAX_MESSAGE_LENGTH, UNLIMITED

YES_NO = Flag("YES", "NO")
ENABLED = Flag("ENABLED", "DISABLED")
OFF_ON = OneOf("QMGR", "ON", "OFF", "NONE", "LOW", "MEDIUM", "HIGH")


@attrs.frozen(kw_only=True)
class Attribute:
    """One attribute of an object, under its MQSC name."""

    word: str
    value: Value
    python: str = ""  # its name in Python; "": no effect here
    default: Any = None  # of an object that MQSC defines; of one without effect: what is shown
    any_value: bool = False  # one without effect: may it have other values than that?
    opposite: str = ""  # SHARE and NOSHARE are words without a value


def attribute(word: str, value: Value, python: str, default: Any = None) -> Attribute:
    return Attribute(word=word, value=value, python=python, default=default)


def idle(word: str, value: Value, default: Any) -> Attribute:
    """An attribute without effect here: another value than the default would be a promise, and is refused."""
    return Attribute(word=word, value=value, default=default)


def harmless(word: str, value: Value, default: Any) -> Attribute:
    """An attribute without effect here, of which any value is accepted."""
    return Attribute(word=word, value=value, default=default, any_value=True)


def switch(word: str, opposite: str, *, on: bool) -> Attribute:
    """A word that stands alone, or with NO before it."""
    return Attribute(word=word, value=Flag(word, opposite), default=on, opposite=opposite)


Table = Mapping[str, Attribute]


def table(*rows: Attribute) -> Table:
    return {row.word: row for row in rows}


COMMON = (
    attribute("DESCR", Text(64), "description", ""),
    attribute("PUT", ENABLED, "put_enabled", True),
    attribute("GET", ENABLED, "get_enabled", True),
)

QLOCAL = table(
    *COMMON,
    attribute("DEFPRTY", Whole(0, 9), "default_priority", 0),
    attribute("DEFPSIST", YES_NO, "default_persistence", False),
    attribute("MAXDEPTH", Whole(0, UNLIMITED), "max_depth", 5000),
    attribute("MAXMSGL", Whole(0, MAX_MESSAGE_LENGTH), "max_message_length", 4_194_304),
    attribute("MSGDLVSQ", OneOf("PRIORITY", "FIFO"), "delivery_sequence", "PRIORITY"),
    attribute("NPMCLASS", OneOf("NORMAL", "HIGH"), "non_persistent_class", "NORMAL"),
    attribute("BOTHRESH", Whole(0, UNLIMITED), "backout_threshold", 0),
    attribute("BOQNAME", Name(), "backout_queue", ""),
    attribute("IMGRCOVQ", OneOf("QMGR", "YES", "NO"), "image_recoverable", "QMGR"),
    attribute("QDEPTHHI", Whole(0, 100), "depth_high", 80),
    attribute("QDEPTHLO", Whole(0, 100), "depth_low", 20),
    attribute("QDPMAXEV", ENABLED, "depth_max_event", True),
    attribute("QDPHIEV", ENABLED, "depth_high_event", False),
    attribute("QDPLOEV", ENABLED, "depth_low_event", False),
    attribute("CAPEXPRY", Tenths(), "expiry_cap", None),
    switch("SHARE", "NOSHARE", on=True),
    switch("HARDENBO", "NOHARDENBO", on=True),
    switch("TRIGGER", "NOTRIGGER", on=False),
    idle("DEFSOPT", OneOf("SHARED", "EXCL"), "SHARED"),
    idle("USAGE", OneOf("NORMAL", "XMITQ"), "NORMAL"),
    idle("STREAMQ", Name(), ""),
    idle("CLUSTER", Name(), ""),
    idle("CLUSNL", Name(), ""),
    idle("CLCHNAME", Name(), ""),
    idle("QSVCIEV", OneOf("NONE", "HIGH", "OK"), "NONE"),
    idle("DISTL", YES_NO, False),
    idle("SCOPE", OneOf("QMGR", "CELL"), "QMGR"),
    harmless("QSVCINT", Whole(0, UNLIMITED), UNLIMITED),
    harmless("RETINTVL", Whole(0, UNLIMITED), UNLIMITED),
    harmless("TRIGTYPE", OneOf("NONE", "FIRST", "EVERY", "DEPTH"), "FIRST"),
    harmless("TRIGDPTH", Whole(1, UNLIMITED), 1),
    harmless("TRIGMPRI", Whole(0, 9), 0),
    harmless("TRIGDATA", Text(64), ""),
    harmless("INITQ", Name(), ""),
    harmless("PROCESS", Name(), ""),
    harmless("STRMQOS", OneOf("BESTEF", "MUSTDUP"), "BESTEF"),
    harmless("DEFBIND", OneOf("OPEN", "NOTFIXED", "GROUP"), "OPEN"),
    harmless("DEFPRESP", OneOf("SYNC", "ASYNC"), "SYNC"),
    harmless("DEFREADA", OneOf("NO", "YES", "DISABLED"), "NO"),
    harmless("PROPCTL", OneOf("COMPAT", "ALL", "FORCE", "NONE"), "COMPAT"),
    harmless("CLWLPRTY", Whole(0, 9), 0),
    harmless("CLWLRANK", Whole(0, 9), 0),
    harmless("CLWLUSEQ", OneOf("QMGR", "ANY", "LOCAL"), "QMGR"),
    harmless("MONQ", OFF_ON, "QMGR"),
    harmless("STATQ", OFF_ON, "QMGR"),
    harmless("ACCTQ", OFF_ON, "QMGR"),
    idle("MAXFSIZE", WholeOr("DEFAULT"), None),
    harmless("CUSTOM", Text(128), ""),  # but for what `custom` finds in it
)

QALIAS = table(
    *COMMON,
    attribute("TARGET", Name(), "target", ""),
    attribute("DEFPRTY", Inherited(Whole(0, 9)), "default_priority", None),
    attribute("DEFPSIST", Inherited(YES_NO), "default_persistence", None),
    idle("TARGTYPE", OneOf("QUEUE", "TOPIC"), "QUEUE"),
    idle("CLUSTER", Name(), ""),
    idle("CLUSNL", Name(), ""),
    idle("SCOPE", OneOf("QMGR", "CELL"), "QMGR"),
    idle("CAPEXPRY", Tenths(), None),
    harmless("CLWLPRTY", Whole(0, 9), 0),
    harmless("CLWLRANK", Whole(0, 9), 0),
    harmless("DEFBIND", OneOf("OPEN", "NOTFIXED", "GROUP"), "OPEN"),
    harmless("DEFPRESP", OneOf("SYNC", "ASYNC"), "SYNC"),
    harmless("DEFREADA", OneOf("NO", "YES", "DISABLED"), "NO"),
    harmless("PROPCTL", OneOf("COMPAT", "ALL", "FORCE", "NONE"), "COMPAT"),
    idle("CUSTOM", Text(128), ""),
)

QMGR = table(
    attribute("DESCR", Text(64), "description"),
    attribute("DEADQ", Name(), "dead_letter_queue"),
    attribute("MAXUMSGS", Whole(1, UNLIMITED), "max_uncommitted"),
    attribute("MAXHANDS", Whole(0, UNLIMITED), "max_handles"),
    attribute("MAXMSGL", Whole(32_768, MAX_MESSAGE_LENGTH), "max_message_length"),
    attribute("PERFMEV", ENABLED, "performance_events"),
    attribute("INHIBTEV", ENABLED, "inhibit_events"),
    attribute("STRSTPEV", ENABLED, "start_stop_events"),
    attribute("LOGGEREV", ENABLED, "logger_events"),
    attribute("AUTHOREV", ENABLED, "authority_events"),
    attribute("IMGSCHED", OneOf("MANUAL", "AUTO"), "image_schedule"),
    attribute("IMGINTVL", WholeOr("OFF"), "image_interval"),
    attribute("IMGLOGLN", WholeOr("OFF"), "image_log_length"),
    attribute("IMGRCOVO", YES_NO, "image_recover_objects"),
    attribute("IMGRCOVQ", YES_NO, "image_recover_queues"),
    idle("LOCALEV", ENABLED, False),
    idle("REMOTEEV", ENABLED, False),
    idle("CONFIGEV", ENABLED, False),
    idle("CMDEV", OneOf("DISABLED", "ENABLED", "NODISPLAY"), "DISABLED"),
    idle("CHLEV", OneOf("DISABLED", "ENABLED", "EXCEPTION"), "DISABLED"),
    idle("SSLEV", ENABLED, False),
    idle("BRIDGEEV", ENABLED, False),
    idle("CHADEV", ENABLED, False),
    idle("CHAD", ENABLED, False),
    idle("DEFXMITQ", Name(), ""),
    idle("REPOS", Name(), ""),
    idle("REPOSNL", Name(), ""),
    idle("PARENT", Name(), ""),
    idle("SSLFIPS", YES_NO, False),
    idle("SUITEB", OneOf("NONE", "128_BIT", "192_BIT"), "NONE"),
    idle("CERTVPOL", OneOf("ANY", "RFC5280", "NONE"), "ANY"),
    idle("MAXPROPL", WholeOr("NOLIMIT"), None),
    idle("XRCAP", YES_NO, False),
    harmless("CHLAUTH", ENABLED, True),  # who comes over a network has the rights that were given here, and no other
    harmless("CONNAUTH", Text(48), "SYSTEM.DEFAULT.AUTHINFO.IDPWOS"),
    harmless("PSMODE", OneOf("DISABLED", "COMPAT", "ENABLED"), "ENABLED"),  # there are no topics to be used
    harmless("PSCLUS", ENABLED, True),
    harmless("CCSID", Whole(1, 65_535), 1208),
    harmless("ACTIVREC", OneOf("MSG", "QUEUE", "DISABLED"), "MSG"),
    harmless("ROUTEREC", OneOf("MSG", "QUEUE", "DISABLED"), "MSG"),
    harmless("SCHINIT", OneOf("QMGR", "MANUAL"), "QMGR"),
    harmless("SCMDSERV", OneOf("QMGR", "MANUAL"), "QMGR"),
    harmless("IPADDRV", OneOf("IPV4", "IPV6"), "IPV4"),
    harmless("REVDNS", ENABLED, True),
    harmless("CHADEXIT", Text(128), ""),
    harmless("CLWLDATA", Text(32), ""),
    harmless("CLWLEXIT", Text(128), ""),
    harmless("CLWLLEN", Whole(0, UNLIMITED), 100),
    harmless("CLWLMRUC", Whole(1, UNLIMITED), UNLIMITED),
    harmless("CLWLUSEQ", OneOf("LOCAL", "ANY"), "LOCAL"),
    harmless("DEFCLXQ", OneOf("SCTQ", "CHANNEL"), "SCTQ"),
    harmless("CERTLABL", Text(64), ""),
    harmless("SSLKEYR", Text(256), ""),
    harmless("KEYRPWD", Text(2048), ""),
    harmless("INITKEY", Text(2048), ""),
    harmless("SSLCRLNL", Name(), ""),
    harmless("SSLCRYP", Text(256), ""),
    harmless("SSLRKEYC", Whole(0, UNLIMITED), 0),
    harmless("MARKINT", WholeOr("NOLIMIT"), 5000),
    harmless("TRIGINT", Whole(0, UNLIMITED), UNLIMITED),
    harmless("TREELIFE", Whole(0, 604_000), 1800),
    harmless("PSNPMSG", OneOf("DISCARD", "KEEP"), "DISCARD"),
    harmless("PSNPRES", OneOf("NORMAL", "SAFE", "DISCARD", "KEEP"), "NORMAL"),
    harmless("PSRTYCNT", Whole(0, UNLIMITED), 5),
    harmless("PSSYNCPT", OneOf("IFPER", "YES"), "IFPER"),
    harmless("MONQ", OFF_ON, "OFF"),
    harmless("MONCHL", OFF_ON, "OFF"),
    harmless("MONACLS", OFF_ON, "QMGR"),
    harmless("STATQ", OFF_ON, "OFF"),
    harmless("STATCHL", OFF_ON, "OFF"),
    harmless("STATACLS", OFF_ON, "QMGR"),
    harmless("STATMQI", OneOf("OFF", "ON"), "OFF"),
    harmless("STATINT", Whole(0, 604_800), 1800),
    harmless("ACCTQ", OFF_ON, "OFF"),
    harmless("ACCTMQI", OneOf("OFF", "ON"), "OFF"),
    harmless("ACCTINT", Whole(0, 604_800), 1800),
    harmless("ACCTCONO", ENABLED, False),
    harmless("ACTVTRC", OneOf("OFF", "ON"), "OFF"),
    harmless("ACTVCONO", ENABLED, False),
    harmless("CUSTOM", Text(128), ""),
)


def defaults(table: Table) -> dict[str, Any]:
    """The values of an object that MQSC defines and says nothing of: IBM MQ's, by their names in Python."""
    return {row.python: row.default for row in table.values() if row.python}


def custom(text: str) -> dict[str, Any]:
    """What CUSTOM of a local queue sets: CAPEXPRY, which had no attribute of its own before 9.4. Raises ValueError."""
    found = re.fullmatch(r" *CAPEXPRY *\( *(\w+) *\) *", text, re.IGNORECASE)
    return {} if found is None else {"expiry_cap": Tenths().read(found[1].upper())}


_SYSTEM = """
    ACCTCONO ACCTINT ACCTMQI ACCTQ ACTIVREC ACTVCONO ACTVTRC CCSID CERTVPOL COMMANDQ CONNAUTH CUSTOM DEADQ DEFXMITQ
    DESCR DISTL IMGINTVL IMGLOGLN IMGRCOVO IMGRCOVQ IMGSCHED MARKINT MAXHANDS MAXMSGL MAXPRTY MAXPROPL MAXUMSGS MONCHL
    MONQ PLATFORM ROUTEREC SCMDSERV STATCHL STATINT STATMQI STATQ SUITEB SYNCPT TRIGINT XRCAP
"""
# keywords of DISPLAY QMGR and DISPLAY QSTATUS that stand for several attributes
QMGR_GROUPS = {
    "EVENT": [word for word in QMGR if word.endswith("EV")],
    "CLUSTER": [word for word in QMGR if word.startswith(("CLWL", "REPOS"))] + ["DEFCLXQ"],
    "PUBSUB": ["PARENT", "PSCLUS", "PSMODE", "PSNPMSG", "PSNPRES", "PSRTYCNT", "PSSYNCPT", "TREELIFE"],
    "CHINIT": [word for word in QMGR if word.startswith(("CHAD", "SSL"))] + ["CHLAUTH", "IPADDRV", "SCHINIT"],
    "SYSTEM": _SYSTEM.split(),
}
MONITOR = ("MSGAGE", "LGETDATE", "LGETTIME", "LPUTDATE", "LPUTTIME", "MONQ", "QTIME")

# shown, and never set; what is blank is not known here
QUEUE_SHOWS = ("CURDEPTH", "IPPROCS", "OPPROCS", "DEFTYPE", "CRDATE", "CRTIME", "ALTDATE", "ALTTIME")
ALIAS_SHOWS = ("ALTDATE", "ALTTIME")
# of queues of other types, which can be asked for among all
OTHER_QUEUES_SHOW = ("RNAME", "RQMNAME", "XMITQ", "CLUSQMGR", "CLUSDATE", "CLUSTIME", "CLUSQT")
QMGR_SHOWS = ("QMNAME", "COMMANDQ", "DISTL", "PLATFORM", "MAXPRTY", "SYNCPT")
STATUS_SHOWS = (
    *("CURDEPTH", "MAXDEPTH", "CURFSIZE", "CURMAXFS", "IPPROCS", "OPPROCS", "LGETDATE", "LGETTIME", "LPUTDATE"),
    *("LPUTTIME", "MEDIALOG", "MONQ", "MSGAGE", "QTIME", "UNCOM", "DAMAGED"),
)
HANDLE_SHOWS = (
    *("APPLTAG", "APPLTYPE", "BROWSE", "CHANNEL", "CONNAME", "HSTATE", "INPUT", "INQUIRE", "OUTPUT", "PID"),
    *("QMURID", "SET", "TID", "URID", "URTYPE", "USERID", "UOWSTATE"),
)
CONN_SHOWS = (
    *("EXTCONN", "PID", "TID", "APPLTAG", "APPLTYPE", "CHANNEL", "CONNAME", "USERID", "UOWLOG", "UOWSTDA", "UOWSTTI"),
    *("UOWLOGDA", "UOWLOGTI", "URTYPE", "EXTURID", "QMURID", "UOWSTATE", "APPLDESC", "ASTATE", "CLIENTID", "CONNOPTS"),
    "CONNTAG",
)
CONN_HANDLE_SHOWS = ("OBJNAME", "OBJTYPE", "HSTATE", "OPENOPTS", "QMURID")
LOG_SHOWS = (
    *("CURRLOG", "RECLOG", "MEDIALOG", "ARCHLOG", "ARCHSZ", "MEDIASZ", "RECSZ", "REUSESZ", "LOGINUSE", "LOGUTIL"),
    *("LOGEXTSZ", "LOGPRIM", "LOGSEC", "LOGTYPE", "LOGSYNC", "LOGPATH", "LOGSTRL", "LOGSTRDA", "LOGSTRTI", "DISKLSN"),
    *("CHKPTCNT", "CHKPTOPS", "CHKPTSZ", "LOGFSSZ", "LOGFSUSE"),
)
BARE = frozenset({"SYNCPT", *(each.word for each in QLOCAL.values() if each.opposite)})  # shown without parentheses
QMSTATUS_SHOWS = (
    *("STATUS", "CONNS", "CHINIT", "CMDSERV", "STANDBY", "UNICLUS", "INSTDESC", "INSTNAME", "INSTPATH", "STARTDA"),
    "STARTTI",
    *LOG_SHOWS,
    *("QMFSSZ", "QMFSUSE", "DATFSSZ", "DATFSUSE", "DATPATH", "QMFSENC"),
)
_NUMBERS = """
    CURDEPTH MAXDEPTH CURFSIZE CURMAXFS IPPROCS OPPROCS MSGAGE CONNS ARCHSZ MEDIASZ RECSZ REUSESZ LOGINUSE LOGUTIL
    LOGEXTSZ LOGPRIM LOGSEC CHKPTCNT CHKPTOPS CHKPTSZ MAXPRTY
"""
NUMBERS = frozenset(_NUMBERS.split())  # of what is shown and can't be set: those that are numbers, or blank
TEXTS = frozenset({"APPLTAG", "APPLDESC", "CHANNEL", "CLIENTID", "CONNAME", "OBJNAME", "USERID"})  # and any text
_USE = OneOf("YES", "NO")
# and those that are one of a few words, of which IBM MQ has more than are shown here
WORDS: Mapping[str, Value] = {
    "APPLTYPE": OneOf("USER", "SYSTEM", "SYSTEMEXT", "BATCH", "RRSBATCH", "CHINIT", "CICS", "IMS"),
    "ASTATE": OneOf("NONE", "STARTED", "STARTWAIT", "STOPPED", "SUSPENDED"),
    "DEFTYPE": OneOf("PREDEFINED", "PERMDYN", "TEMPDYN", "SHAREDYN"),
    "HSTATE": OneOf("ACTIVE", "INACTIVE"),
    "INPUT": OneOf("SHARED", "EXCL", "NO"),
    **dict.fromkeys(("BROWSE", "INQUIRE", "OUTPUT", "SET"), _USE),
    "UOWSTATE": OneOf("NONE", "ACTIVE", "PREPARED", "UNRESOLVED"),
    "URTYPE": OneOf("QMGR", "XA", "CICS", "IMS", "RRS"),
}
TABLES: Mapping[str, tuple[Table, ...]] = {
    "QLOCAL": (QLOCAL,),
    "QALIAS": (QALIAS,),
    "QUEUE": (QLOCAL, QALIAS),
    "QMGR": (QMGR,),
}


def compared(name: str, word: str) -> Value | None:
    """What an attribute of such an object may be compared with by WHERE; None: with any text."""
    row = next((table[word] for table in TABLES.get(name, ()) if word in table), None)
    if word in NUMBERS or (row is not None and isinstance(row.value, Whole)):
        return Whole(0, UNLIMITED)  # less than MAXMSGL can be is a good question all the same
    if word in WORDS:
        return WORDS[word]
    return row.value if row is not None and isinstance(row.value, WholeOr | Tenths | Flag | OneOf) else None


def is_text(name: str, word: str) -> bool:
    """Are the values of an attribute of such an object any text, or names?"""
    row = next((table[word] for table in TABLES.get(name, ()) if word in table), None)
    return word in TEXTS or (row is not None and isinstance(row.value, Text | Name))


class Naming(enum.Enum):
    """What stands in the parentheses behind the object."""

    NOTHING = "nothing"
    NAME = "a name"
    GENERIC = "a name, or its beginning and *"
    ALL = "*"  # or nothing, which is the same


@attrs.frozen(kw_only=True)
class Row:
    """One command."""

    verb: str
    object: str
    naming: Naming = Naming.NOTHING
    settings: Table = attrs.Factory(dict)  # what may be set
    options: Mapping[str, Value | None] = attrs.Factory(dict)  # other keywords; None: without a value
    needs: tuple[str, ...] = ()  # of those, what can't be left out
    shows: tuple[str, ...] = ()  # what may be displayed

    @property
    def words(self) -> str:
        return f"{self.verb} {self.object}"


def row(verb: str, name: str, **more: Any) -> Row:
    return Row(verb=verb, object=name, **more)


REDUCE = OneOf("AUTO", "ONE", "MAX")


class Reduction:
    """AUTO, ONE, MAX or a number of extents."""

    def read(self, text: str) -> str | int:
        if text in REDUCE.words:
            return text
        try:
            return Whole(1, UNLIMITED).read(text)
        except ValueError:
            raise ValueError(f"AUTO, ONE, MAX or a whole number from 1 to {UNLIMITED}") from None

    def show(self, value: Any) -> str:
        return str(value)


DELETING = {"IGNSTATE": YES_NO, "AUTHREC": YES_NO}
LIKE = {"LIKE": Name(blank=False), "REPLACE": None, "NOREPLACE": None}
CLUSINFO = {"CLUSINFO": None}
FORCE = {"FORCE": None}  # IBM MQ alters what is open with FORCE only; here nothing is held open
OTHER_QUEUES = ("QREMOTE", "QMODEL", "QCLUSTER")  # of these types there is none here
TYPES = ("QLOCAL", "QALIAS", *OTHER_QUEUES, "ALL")
QUEUES_SHOW = tuple(dict.fromkeys((*QLOCAL, *QALIAS, *QUEUE_SHOWS, "TYPE", *OTHER_QUEUES_SHOW)))

# rights of users that come over a network: setmqaut, dspmqaut
AUTHREC = {
    "PROFILE": Pattern(authority.PROFILE, "1 to 48 of the characters A-Z a-z 0-9 . / _ % ? *"),
    "OBJTYPE": OneOf("QUEUE", "QMGR"),
    "PRINCIPAL": Pattern(authority.USER, "1 to 64 of the characters A-Z a-z 0-9 . _ @ -"),
}
MATCH = OneOf("PROFILE", "EXACT", "MEMBERSHIP")  # the last is of groups, which there are none of here
RIGHTS = Words(tuple(word.upper() for word in authority.WORDS))

COMMANDS = {
    (each.verb, each.object): each
    for each in (
        row("DEFINE", "QLOCAL", naming=Naming.NAME, settings=QLOCAL, options=LIKE),
        row("DEFINE", "QALIAS", naming=Naming.NAME, settings=QALIAS, options=LIKE),
        row("ALTER", "QLOCAL", naming=Naming.NAME, settings=QLOCAL, options=FORCE),
        row("ALTER", "QALIAS", naming=Naming.NAME, settings=QALIAS, options=FORCE),
        row("ALTER", "QMGR", settings=QMGR, options=FORCE),
        row("DELETE", "QLOCAL", naming=Naming.NAME, options={"PURGE": None, "NOPURGE": None} | DELETING),
        row("DELETE", "QALIAS", naming=Naming.NAME, options=DELETING),
        row("CLEAR", "QLOCAL", naming=Naming.NAME),
        row("DISPLAY", "QLOCAL", naming=Naming.GENERIC, shows=(*QLOCAL, *QUEUE_SHOWS, "TYPE"), options=CLUSINFO),
        row("DISPLAY", "QALIAS", naming=Naming.GENERIC, shows=(*QALIAS, *ALIAS_SHOWS, "TYPE"), options=CLUSINFO),
        row(
            "DISPLAY",
            "QUEUE",
            naming=Naming.GENERIC,
            shows=QUEUES_SHOW,
            options={"TYPE": OneOf(*TYPES), **CLUSINFO},
        ),
        *(row("DISPLAY", kind, naming=Naming.GENERIC, shows=QUEUES_SHOW, options=CLUSINFO) for kind in OTHER_QUEUES),
        row(
            "DISPLAY",
            "QSTATUS",
            naming=Naming.GENERIC,
            shows=tuple(dict.fromkeys((*STATUS_SHOWS, *HANDLE_SHOWS))),
            options={"TYPE": OneOf("QUEUE", "HANDLE"), "MONITOR": None},
        ),
        row("DISPLAY", "QMGR", shows=(*QMGR, *QMGR_SHOWS), options=dict.fromkeys(QMGR_GROUPS)),
        row("DISPLAY", "QMSTATUS", shows=QMSTATUS_SHOWS, options={"TYPE": OneOf("QMGR"), "LOG": None}),
        row(
            "DISPLAY",
            "CONN",
            naming=Naming.GENERIC,
            shows=tuple(dict.fromkeys((*CONN_SHOWS, *CONN_HANDLE_SHOWS))),
            options={"TYPE": OneOf("CONN", "HANDLE", "ALL", "*")},
        ),
        row(
            "RESET",
            "QMGR",
            options={"TYPE": OneOf("ADVANCELOG", "ARCHLOG", "REDUCELOG"), "ARCHIVED": Text(64), "REDUCE": Reduction()},
            needs=("TYPE",),
        ),
        row("SET", "LOG", options={"ARCHIVED": Text(64)}, needs=("ARCHIVED",)),
        row("SET", "AUTHREC", options=AUTHREC | {"AUTHADD": RIGHTS, "AUTHRMV": RIGHTS}, needs=("OBJTYPE", "PRINCIPAL")),
        row("DELETE", "AUTHREC", options=AUTHREC, needs=("OBJTYPE", "PRINCIPAL")),
        row("DISPLAY", "AUTHREC", options=AUTHREC | {"MATCH": MATCH}, shows=("AUTHLIST",)),
        row("PING", "QMGR"),
        row("REFRESH", "SECURITY", naming=Naming.ALL, options={"TYPE": OneOf("AUTHSERV", "CONNAUTH")}),
        row("STOP", "CONN", naming=Naming.NAME, options={"EXTCONN": Text(32), "MODE": OneOf("FORCE", "QUIESCE")}),
    )
}

VERBS = tuple(dict.fromkeys(verb for verb, _ in COMMANDS))
MIN_VERB_CHARS = 3  # DEF, DIS, ALT
OBJECTS = {
    **{name: name for _, name in COMMANDS},
    "QL": "QLOCAL",
    "QA": "QALIAS",
    "Q": "QUEUE",
    "QS": "QSTATUS",
    "QR": "QREMOTE",
    "QM": "QMODEL",
    "QC": "QCLUSTER",
}
SYNONYMS = {"TARGQ": "TARGET", "QTYPE": "TYPE"}  # of attributes
_ABSENT = """
    AUTHINFO AUTHSERV CHANNEL CHL CHLAUTH CHSTATUS CHS CLUSQMGR COMMINFO ENTAUTH LISTENER LSSTATUS NAMELIST NL POLICY
    PROCESS PRO PUBSUB QCLUSTER QMODEL QREMOTE SBSTATUS SERVICE SUB SVSTATUS TCLUSTER TOPIC TPSTATUS
"""
OF_IBM_MQ = frozenset(_ABSENT.split())  # objects that there are none of here
VERBS_OF_IBM_MQ = ("ARCHIVE", "BACKUP", "MOVE", "PURGE", "RECOVER", "RESOLVE", "RESUME", "START", "SUSPEND")
