"""users.json: who may connect over a network, and what proves it: verifiers of SCRAM-SHA-256 (RFC 5802), no passwords.

They lie beside qm.ini with mode 0600, and not in the log, which others read. An edit takes effect with the next
connection; what a user may do is another matter: `authority.py`.
"""

import contextlib
import hashlib
import hmac
import json
import unicodedata
from collections.abc import Iterator

import attrs

from logger.clock import SystemClock
from logger.disk import Disk
from logger.disk_errors import advice
from logger.whole_files import read_whole, replace_file
from qmgr.authority import check_user
from qmgr.errors import IniError, Mistake, Reason
from qmgr.locations import Location
from qmgr.mqsini import locked
from qmgr.ownership import refuse_root

ITERATIONS = 16_384
MAX_ITERATIONS = 1 << 20
SALT_BYTES = 16
MAX_PASSWORD_BYTES = 1024
FORMAT = 1


@attrs.frozen(kw_only=True)
class Verifier:
    """What is kept of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def salted(password: str, salt: bytes, iterations: int) -> bytes:
    """The password as a key; variants of one letter count as that letter (NFKC)."""
    return hashlib.pbkdf2_hmac("sha256", unicodedata.normalize("NFKC", password).encode(), salt, iterations)


def keyed(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def verifier(password: str, salt: bytes, iterations: int = ITERATIONS) -> Verifier:
    """What proves this password. Raises Mistake for one that is empty, too long or no text."""
    try:
        size = len(password.encode())
    except UnicodeEncodeError:  # bytes that are not UTF-8, read as if they were
        size = 0
    if not 1 <= size <= MAX_PASSWORD_BYTES or "\0" in password:
        raise Mistake(f"a password is text of 1 to {MAX_PASSWORD_BYTES} bytes in UTF-8", reason=Reason.OPTIONS_ERROR)
    key = salted(password, salt, iterations)
    return Verifier(
        salt=salt,
        iterations=iterations,
        stored_key=digest(keyed(key, b"Client Key")),
        server_key=keyed(key, b"Server Key"),
    )


class Users:
    """The file, which is read anew for each look-up."""

    def __init__(self, disk: Disk, location: Location) -> None:
        self._disk = disk
        self._path = location.users
        self._location = location

    def find(self, name: str) -> Verifier | None:
        """What proves the user's password; None: there is no such user. Raises IniError for a damaged file, OSError."""
        return self._read().get(name)

    def complaint(self) -> str:
        """What is wrong with the file, as a line of the error log; "" when nothing is."""
        try:
            self._read()
        except IniError as exc:
            return exc.sentence
        except OSError as exc:
            return f"AMQ6165E: {self._path} can't be read: {exc.strerror}; {advice(exc).removesuffix(',')}."
        return ""

    def names(self) -> list[str]:
        return sorted(self._read())

    def set(self, name: str, password: str) -> None:
        """Let the user in with this password, and with no other. Raises Mistake, InUse."""
        with self._edited() as known:
            known[check_user(name)] = verifier(password, self._disk.entropy(SALT_BYTES))

    def remove(self, name: str) -> None:
        """Let the user in no more. Raises Mistake where there is no such user, InUse."""
        with self._edited() as known:
            if known.pop(name, None) is None:
                raise Mistake(f"there is no user {name!r}", reason=Reason.OPTIONS_ERROR)

    @contextlib.contextmanager
    def _edited(self) -> Iterator[dict[str, Verifier]]:
        """The users, to be changed; they are written at the end. Others who change some wait for that."""
        refuse_root(self._disk, self._location.data_dir, self._location.name)
        with locked(self._disk, f"{self._path}.lock", SystemClock()):
            self._disk.sync_dir(self._location.data_dir)  # the last edit may not be synced: a killed process made it
            known = self._read()
            yield known
            self._write(known)

    def _read(self) -> dict[str, Verifier]:
        if not self._disk.exists(self._path):
            return {}
        try:
            said = json.loads(read_whole(self._disk, self._path))
            if said["format"] != FORMAT:
                raise ValueError(said["format"])
            return {check_user(name): _decode(fields) for name, fields in said["users"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Mistake) as exc:
            why = "it is not as qm setuser writes it"
            if isinstance(exc, json.JSONDecodeError):
                why = f"it is no JSON from line {exc.lineno}, column {exc.colno} on"
            text = f"AMQ6162E: {self._path} is damaged: {why}; bring it back, or delete it and set the users anew."
            raise IniError(text, name=self._path) from exc

    def _write(self, known: dict[str, Verifier]) -> None:
        users = {
            name: {field: value.hex() if isinstance(value, bytes) else value for field, value in fields.items()}
            for name, fields in ((name, attrs.asdict(one)) for name, one in sorted(known.items()))
        }
        replace_file(self._disk, self._path, json.dumps({"format": FORMAT, "users": users}, indent=1).encode() + b"\n")


def _decode(fields: dict[str, object]) -> Verifier:
    iterations = fields["iterations"]
    if type(iterations) is not int or not 1 <= iterations <= MAX_ITERATIONS:
        raise ValueError(iterations)
    salt, stored, server = (bytes.fromhex(str(fields[name])) for name in ("salt", "stored_key", "server_key"))
    return Verifier(salt=salt, iterations=iterations, stored_key=stored, server_key=server)
