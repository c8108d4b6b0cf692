"""Authentication by SASL: PLAIN, SCRAM-SHA-256 and EXTERNAL, both sides of each, as exchanges of bytes.

Pure: no sockets. PLAIN gives the password away, so listeners offer it with TLS only. A user who is not known fails
where a wrong password does, after the same steps.
"""

import base64
import binascii
import hmac
from collections.abc import Callable
from typing import Protocol

import attrs

from qmgr.errors import NotAuthorized
from qmgr.users import ITERATIONS, MAX_ITERATIONS, SALT_BYTES, Verifier, digest, keyed, salted

PLAIN, SCRAM, EXTERNAL = "PLAIN", "SCRAM-SHA-256", "EXTERNAL"
MAX_MESSAGE_BYTES = 4096
NONCE_BYTES = 18

Find = Callable[[str], Verifier | None]
Entropy = Callable[[int], bytes]


def refused(user: str = "") -> NotAuthorized:
    """One sentence for every reason, so that nobody learns which users there are."""
    return NotAuthorized("the user is not known, or the password is wrong", name=user)


@attrs.frozen
class Reply:
    """What the server answers: a challenge, or at the end the user who is known now."""

    data: bytes
    user: str | None = None


class Server(Protocol):
    """The server's side of one exchange."""

    def step(self, data: bytes) -> Reply:
        """The answer to what the client sent. Raises NotAuthorized."""


_secret: list[bytes] = []  # of this process


def nobody(user: str, entropy: Entropy) -> Verifier:
    """A verifier that fits no password. One name always gets the same salt, as if there were such a user."""
    if not _secret:
        _secret.append(entropy(32))
    salt = keyed(_secret[0], user.encode())[:SALT_BYTES]
    return Verifier(salt=salt, iterations=ITERATIONS, stored_key=entropy(32), server_key=entropy(32))


class PlainServer:
    """PLAIN (RFC 4616): user and password in one message."""

    def __init__(self, find: Find, entropy: Entropy) -> None:
        self._find = find
        self._entropy = entropy

    def step(self, data: bytes) -> Reply:
        parts = _bounded(data).split("\0")
        if len(parts) != 3 or parts[0] not in ("", parts[1]):
            raise refused()
        check_password(self._find, self._entropy, parts[1], parts[2])
        return Reply(b"", parts[1])


def check_password(find: Find, entropy: Entropy, user: str, password: str) -> None:
    """Raises NotAuthorized; it takes as long for a user who is not known."""
    known = find(user)
    against = known or nobody(user, entropy)
    server_key = keyed(salted(password[:MAX_MESSAGE_BYTES], against.salt, against.iterations), b"Server Key")
    if not hmac.compare_digest(server_key, against.server_key) or known is None:
        raise refused(user)


class ExternalServer:
    """TLS has shown who the client is: the common name in its certificate."""

    def __init__(self, certified: str | None) -> None:
        self._certified = certified

    def step(self, data: bytes) -> Reply:
        if not self._certified or _bounded(data) not in ("", self._certified):
            raise NotAuthorized("the client has shown no certificate, or asks to be somebody else than that says")
        return Reply(b"", self._certified)


class ScramServer:
    """SCRAM-SHA-256 (RFC 7677), without channel binding."""

    def __init__(self, find: Find, entropy: Entropy) -> None:
        self._find = find
        self._entropy = entropy
        self._user = ""
        self._known: Verifier | None = None
        self._against: Verifier | None = None
        self._nonce = ""
        self._said = ""  # the first messages of both sides, which are signed

    def step(self, data: bytes) -> Reply:
        return self._first(_bounded(data)) if self._against is None else self._final(_bounded(data), self._against)

    def _first(self, text: str) -> Reply:
        header, _, bare = text.partition(",,")
        fields = _fields(bare)
        if header not in ("n", "y") or "n" not in fields or not fields.get("r") or "m" in fields:
            raise refused()
        self._user = fields["n"].replace("=2C", ",").replace("=3D", "=")
        self._known = self._find(self._user)
        self._against = self._known or nobody(self._user, self._entropy)
        self._nonce = fields["r"] + _b64(self._entropy(NONCE_BYTES))
        challenge = f"r={self._nonce},s={_b64(self._against.salt)},i={self._against.iterations}"
        self._header, self._said = header, f"{bare},{challenge}"
        return Reply(challenge.encode())

    def _final(self, text: str, against: Verifier) -> Reply:
        without, _, proof = text.rpartition(",p=")
        fields = _fields(without)
        signed = f"{self._said},{without}".encode()
        given = _unb64(proof)
        key = _xor(given, keyed(against.stored_key, signed))
        right = hmac.compare_digest(digest(key), against.stored_key)
        if not right or self._known is None or fields.get("r") != self._nonce:
            raise refused(self._user)
        if fields.get("c") != _b64(f"{self._header},,".encode()):
            raise refused(self._user)
        return Reply(f"v={_b64(keyed(against.server_key, signed))}".encode(), self._user)


def server(mechanism: str, find: Find, entropy: Entropy, certified: str | None = None) -> Server:
    """The server's side of an exchange by this mechanism, which the caller has offered."""
    if mechanism == PLAIN:
        return PlainServer(find, entropy)
    if mechanism == SCRAM:
        return ScramServer(find, entropy)
    if mechanism == EXTERNAL:
        return ExternalServer(certified)
    raise NotAuthorized(f"there is no way {mechanism[:40]!r} to say who one is; use PLAIN, SCRAM-SHA-256 or EXTERNAL")


class Client:
    """The client's side: `first`, then `answer` for each challenge; `finish` checks what the server said at last."""

    def __init__(self, mechanism: str, user: str, password: str, entropy: Entropy) -> None:
        self._mechanism = mechanism
        self._user = user
        self._password = password
        self._nonce = _b64(entropy(NONCE_BYTES))
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={self._nonce}"
        self._signature = b""

    def first(self) -> bytes:
        if self._mechanism == PLAIN:
            return f"\0{self._user}\0{self._password}".encode()
        return f"n,,{self._bare}".encode() if self._mechanism == SCRAM else self._user.encode()

    def answer(self, challenge: bytes) -> bytes:
        """Raises NotAuthorized where the challenge can't be believed."""
        text = _bounded(challenge)
        fields = _fields(text)
        iterations = int(fields.get("i", "0")) if fields.get("i", "0").isdecimal() else 0
        if not fields.get("r", "").startswith(self._nonce) or not 1 <= iterations <= MAX_ITERATIONS:
            raise NotAuthorized("the server's challenge is not an answer to this client")
        key = salted(self._password, _unb64(fields.get("s", "")), iterations)
        without = f"c={_b64(b'n,,')},r={fields['r']}"
        signed = f"{self._bare},{text},{without}".encode()
        client_key = keyed(key, b"Client Key")
        self._signature = keyed(keyed(key, b"Server Key"), signed)
        return f"{without},p={_b64(_xor(client_key, keyed(digest(client_key), signed)))}".encode()

    def finish(self, data: bytes) -> None:
        """Raises NotAuthorized when the server does not know the password either."""
        if self._mechanism == SCRAM:
            given = _unb64(_fields(_bounded(data)).get("v", ""))
            if not self._signature or not hmac.compare_digest(given, self._signature):
                raise NotAuthorized("the server could not show that it knows the user")


def _bounded(data: bytes) -> str:
    if len(data) > MAX_MESSAGE_BYTES:
        raise refused()
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise refused() from None


def _fields(text: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unb64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise refused() from None


def _xor(one: bytes, other: bytes) -> bytes:
    if len(one) != len(other):
        raise refused()
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
