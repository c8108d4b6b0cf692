"""Who may do what: rights of users on queues and on the queue manager, by name or with wildcards (setmqaut, dspmqaut).

They are attributes of the queue manager, so the log has them. Of the profiles that fit a name the most specific one
that names the user decides: `?` stands for one character, `*` for any within a part between dots, `**` for any parts,
or none.
Only clients that come over a network are checked: whoever can open the queue manager's files may do everything.
"""

import functools
import re
from collections.abc import Iterable
from typing import Any, Protocol

import attrs

from qmgr.errors import AliasOfAlias, Mistake, NotAuthorized, Reason, UnknownQueue, quoted

QUEUE, QMGR = "queue", "qmgr"
VERBS = ("connect", "inquire", "put", "get", "browse", "admin")
RIGHTS_ON = {QUEUE: VERBS[1:], QMGR: ("connect", "inquire", "admin")}  # nobody connects to a queue
WORDS = {
    **{verb: (verb,) for verb in VERBS},
    "inq": ("inquire",),
    "dsp": ("inquire",),
    "alladm": ("admin", "inquire"),
    "allmqi": ("connect", "inquire", "put", "get", "browse"),
    "all": VERBS,
    "none": (),
}
SHORT = {"inquire": "inq"}  # as IBM MQ shows it; the others are called the same
USER = re.compile(r"[A-Za-z0-9._@-]{1,64}")
PROFILE = re.compile(r"[A-Za-z0-9._/%?*]{1,48}")
MAX_NAME_CHARS = 48
MAX_GRANTS = 1000
MAX_STARS = 4  # in a profile: each multiplies the time that a name which does not fit may take


def check_user(name: object) -> str:
    """The name, if it can be that of a user. Raises Mistake (2152)."""
    if isinstance(name, str) and USER.fullmatch(name):
        return name
    text = f"{quoted(name)} can't be the name of a user: use 1 to 64 of the characters A-Z a-z 0-9 . _ @ -"
    raise Mistake(text, reason=Reason.OBJECT_NAME_ERROR)


def _sorted(rights: Iterable[str]) -> tuple[str, ...]:
    if isinstance(rights, str) or not isinstance(rights, Iterable):
        raise Mistake(f"rights are several words, not {quoted(rights)}", reason=Reason.OPTIONS_ERROR)
    known = set(rights)
    return tuple(verb for verb in VERBS if verb in known)


def _user(_: object, attribute: "attrs.Attribute[str]", value: str) -> None:
    check_user(value)


def _kind(_: object, attribute: "attrs.Attribute[str]", value: str) -> None:
    if value not in (QUEUE, QMGR):
        raise Mistake(f"rights are on a {QUEUE} or the {QMGR}, not on {quoted(value)}", reason=Reason.OPTIONS_ERROR)


def _profile(grant: "Grant", attribute: "attrs.Attribute[str]", value: str) -> None:
    if grant.kind == QMGR:
        if value != "":
            raise Mistake("rights on the queue manager have no profile", reason=Reason.OPTIONS_ERROR)
    elif not isinstance(value, str) or not PROFILE.fullmatch(value):
        text = f"{quoted(value)} can't be a profile: use 1 to 48 of the characters A-Z a-z 0-9 . / _ % ? *"
        raise Mistake(text, reason=Reason.OBJECT_NAME_ERROR)
    elif len(re.findall(r"\*+", value)) > MAX_STARS:
        text = f"profile {value!r} has more than {MAX_STARS} wildcards * or **"
        raise Mistake(text, reason=Reason.OBJECT_NAME_ERROR)


@attrs.frozen(kw_only=True)
class Grant:
    """What one user may do to the queues that a profile fits, or to the queue manager."""

    user: str = attrs.field(validator=_user)
    kind: str = attrs.field(default=QUEUE, validator=_kind)
    profile: str = attrs.field(default="", validator=_profile)
    rights: tuple[str, ...] = attrs.field(default=(), converter=_sorted)


def words(said: Iterable[str], kind: str) -> set[str]:
    """The rights that these words stand for on a queue, or on the queue manager. Raises Mistake."""
    if isinstance(said, str) or not isinstance(said, Iterable):
        raise Mistake(f"rights are several words, not {quoted(said)}", reason=Reason.OPTIONS_ERROR)
    return {verb for word in said for verb in meant(word, kind)}


def meant(word: object, kind: str) -> tuple[str, ...]:
    """The rights that one word stands for on this kind of object: of a group, such as `all`, those that exist there.

    Raises Mistake for any other word, and for a right that does not exist there.
    """
    if not isinstance(word, str) or word.lower() not in WORDS:
        allowed = ", ".join(sorted(WORDS))
        raise Mistake(f"there is no right {quoted(word)} here; there are {allowed}", reason=Reason.OPTIONS_ERROR)
    verbs = WORDS[word.lower()]
    found = tuple(verb for verb in verbs if verb in RIGHTS_ON[kind])
    if verbs and not found:
        what = "a queue" if kind == QUEUE else "the queue manager"
        text = f"there is no right {quoted(word)} on {what}; there are {', '.join(RIGHTS_ON[kind])}"
        raise Mistake(text, reason=Reason.OPTIONS_ERROR)
    return found


def shown(rights: Iterable[str]) -> list[str]:
    """The rights as commands show them."""
    return [SHORT.get(verb, verb) for verb in rights]


def changed(
    grants: Iterable[Grant], user: str, kind: str, profile: str, add: Iterable[str], remove: Iterable[str]
) -> tuple[Grant, ...]:
    """The grants after rights of one user on one profile were added and then removed. Raises Mistake.

    A grant that is left without rights stays: where it is the most specific one, it refuses what others give.
    """
    wanted = Grant(user=user, kind=kind, profile=profile)
    rest = {(one.user, one.kind, one.profile): one for one in grants}
    key = wanted.user, wanted.kind, wanted.profile
    before = set(rest.get(key, wanted).rights) & set(RIGHTS_ON[kind])  # earlier versions also gave others
    rights = (before | words(add, kind)) - words(remove, kind)
    rest[key] = attrs.evolve(wanted, rights=tuple(rights))
    if len(rest) > MAX_GRANTS:
        raise Mistake(f"there are {MAX_GRANTS} grants already; remove some", reason=Reason.OPTIONS_ERROR)
    return tuple(rest[one] for one in sorted(rest))


def without(grants: Iterable[Grant], user: str, kind: str, profile: str) -> tuple[Grant, ...]:
    """The grants without this one. Raises Mistake where there is none."""
    known = tuple(grants)
    kept = tuple(one for one in known if (one.user, one.kind, one.profile) != (user, kind, profile))
    if len(kept) == len(known):
        what = f"on {quoted(profile)}" if profile else "on the queue manager"
        raise Mistake(f"user {quoted(user)} has no rights of their own {what}", reason=Reason.OPTIONS_ERROR)
    return kept


@functools.lru_cache(maxsize=4096)
def pattern(profile: str) -> re.Pattern[str]:
    """A regular expression that matches the names which the profile fits.

    A `**` between dots takes a dot with it, so that it can stand for no part at all.
    """
    parts = re.split(r"(\.\*\*(?=\.)|\.\*\*$|^\*\*\.|\*+|\?)", profile)
    said = {"?": "[^.]", "*": "[^.]*", ".**": r"(?:\..*)?", "**.": r"(?:.*\.)?"}
    return re.compile("".join(said.get(part, ".*" if part.startswith("**") else re.escape(part)) for part in parts))


def specific(profile: str) -> tuple[int, ...]:
    """The key that profiles which fit one name are compared by; the highest is the most specific one.

    Character by character, a plain one counts more than `?`, that more than `*`, that more than `**`; and the end of
    a profile counts more than a wildcard in its place: `A.B` is more specific than `A.B*`.
    """
    wide = {"?": 2, "*": 1, "**": 0}
    return (*(wide.get(part, 3) for part in re.findall(r"\*\*|.", profile)), 4)


def allowed(grants: Iterable[Grant], user: str, verb: str, name: str) -> bool:
    """Do the grants let the user do `verb` to the queue `name`, or, if that is "", to the queue manager?"""
    own = [one for one in grants if one.user == user]
    on_manager = {right for one in own if one.kind == QMGR for right in one.rights}
    if not name or "admin" in on_manager:
        return verb in on_manager or "admin" in on_manager
    fitting = [one for one in own if one.kind == QUEUE and pattern(one.profile).fullmatch(name)]
    best = max(fitting, key=lambda one: specific(one.profile), default=None)
    return best is not None and (verb in best.rights or "admin" in best.rights)


class Named(Protocol):
    """Where the queues are: a queue manager, or a connection to one."""

    def queue(self, name: str) -> Any: ...
    def aliases(self) -> Iterable[Any]: ...


def is_generic(profile: str) -> bool:
    return bool(set("*?") & set(profile))


def is_there(manager: Named, profile: str) -> bool:
    """Can the profile mean anything now: has it wildcards, is it the queue manager (""), a queue or an alias?"""
    if not profile or is_generic(profile):
        return True
    try:
        manager.queue(profile)
    except (UnknownQueue, AliasOfAlias):
        return any(alias.name == profile for alias in manager.aliases())
    return True


class Granting(Protocol):
    """Where the grants are: the queue manager."""

    name: str

    @property
    def attributes(self) -> Any: ...

    def not_authorized(self, user: str, verb: str, name: str) -> None:
        """An event, if those are wanted (AUTHOREV)."""


class UserRights:
    """The rights of one user; changes of the grants count at once."""

    def __init__(self, manager: Granting, user: str, denied: "Denied") -> None:
        self.user = user
        self._manager = manager
        self._denied = denied
        self._grants: tuple[Grant, ...] | None = None
        self._known: dict[tuple[str, str], bool] = {}

    def require(self, verb: str, name: str) -> None:
        """Raises NotAuthorized (2035), and reports that in the error log."""
        if not self.permits(verb, name):
            self._denied(user=self.user, verb=verb, name=name)
            what = f"queue {name!r}" if name else f"queue manager {self._manager.name!r}"
            raise NotAuthorized(f"user {self.user!r} has no right {verb!r} on {what}; setmqaut gives it", name=name)

    def permits(self, verb: str, name: str) -> bool:
        """May the user do that? Reports nothing."""
        if len(name) > MAX_NAME_CHARS:  # no queue has such a name, and it would take long to match
            return False
        grants = self._manager.attributes.authorities
        if grants is not self._grants:
            self._grants, self._known = grants, {}
        may = self._known.get((verb, name))
        if may is None:
            if len(self._known) > MAX_GRANTS:
                self._known.clear()
            may = self._known[verb, name] = allowed(grants, self.user, verb, name)
        return may


class Denied(Protocol):
    """Hears of what was refused. `name`: of a queue; "": the queue manager."""

    def __call__(self, *, user: str, verb: str, name: str) -> None: ...
