"""Who somebody is: the exchanges, a known one from RFC 7677, wrong passwords, garbage; the file of users."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logger.whole_files import make_dirs
from qmgr import locations, mqsini, sasl
from qmgr.errors import IniError, InUse, Mistake, NotAuthorized
from qmgr.locations import Location
from qmgr.sasl import EXTERNAL, PLAIN, SCRAM, Client, ScramServer, server
from qmgr.users import Users, verifier
from tests.sim.disk import SimCrash, SimDisk
from tests.sim.loss import KEEP_ALL, LOSE_ALL

COUNT = 64  # iterations


def find(name: str) -> sasl.Verifier | None:
    return verifier("s3kr=t,", b"salt", COUNT) if name == "m,i=a" else None


def entropy(size: int) -> bytes:
    return bytes(range(size))


def exchange(mechanism: str, user: str, password: str) -> str | None:
    client, other = Client(mechanism, user, password, entropy), server(mechanism, find, entropy, "m,i=a")
    reply = other.step(client.first())
    while reply.user is None:
        reply = other.step(client.answer(reply.data))
    client.finish(reply.data)
    return reply.user


@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM, EXTERNAL])
def test_who_knows_the_password_is_let_in(mechanism: str) -> None:
    assert exchange(mechanism, "m,i=a", "s3kr=t,") == "m,i=a"


@pytest.mark.parametrize(("user", "password"), [("m,i=a", "other"), ("tom", "s3kr=t,"), ("", ""), ("m,i=a", "")])
@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM])
def test_nobody_else_is(mechanism: str, user: str, password: str) -> None:
    """Row 79."""
    with pytest.raises(NotAuthorized, match="not known, or the password is wrong"):
        exchange(mechanism, user, password)


def test_a_certificate_speaks_for_its_owner_only() -> None:
    assert server(EXTERNAL, find, entropy, "mia").step(b"").user == "mia"
    for certified, said in ((None, b""), ("mia", b"tom"), ("", b"")):
        with pytest.raises(NotAuthorized):
            server(EXTERNAL, find, entropy, certified).step(said)
    with pytest.raises(NotAuthorized):
        server("CRAM-MD5", find, entropy)


@pytest.mark.parametrize(
    ("mechanism", "said"),
    [
        (PLAIN, b"tom\0m,i=a\0s3kr=t,"),
        (PLAIN, b"\0m,i=a\0s3kr=t,\0"),
        (PLAIN, b"m,i=a\0s3kr=t,"),
        (SCRAM, b"n,a=tom,n=m=2Ci=3Da,r=nonce"),
        (SCRAM, b"p=tls-unique,,n=m=2Ci=3Da,r=nonce"),
        (SCRAM, b"n,,m=more,n=m=2Ci=3Da,r=nonce"),
        (SCRAM, b"n,,n=m=2Ci=3Da,r="),
        (SCRAM, b"n,,r=nonce"),
    ],
)
def test_who_asks_for_what_is_not_here_is_refused_whatever_he_knows(mechanism: str, said: bytes) -> None:
    """To be somebody else than the password is of, a binding to the channel, an extension that must be understood."""
    with pytest.raises(NotAuthorized, match="not known, or the password is wrong"):
        server(mechanism, find, entropy).step(said)


def test_the_exchange_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    salt = sasl._unb64("W22ZaJ0SNY7soEsUEjb6gQ==")
    known = verifier("pencil", salt, 4096)
    server_nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    monkeypatch.setattr(sasl, "_b64", lambda data, real=sasl._b64: server_nonce if data == b"nonce" else real(data))
    other = ScramServer(lambda name: known if name == "user" else None, lambda size: b"nonce")
    challenge = other.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO").data
    assert challenge == b"r=rOprNGfwEbeRWgbNEkqO" + server_nonce.encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = other.step(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO" + server_nonce.encode() + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert final == sasl.Reply(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "user")


def test_row_79_what_was_overheard_proves_nothing_a_second_time() -> None:
    """An exchange that was right, said again word for word: the server's part of the nonce is another one."""
    client, other = Client(SCRAM, "m,i=a", "s3kr=t,", entropy), ScramServer(find, entropy)
    said = [client.first()]
    said.append(client.answer(other.step(said[0]).data))
    assert other.step(said[1]).user == "m,i=a"
    again = ScramServer(find, lambda size: b"n" * size)
    assert again.step(said[0]).user is None
    for words in (said[1], said[1].replace(b"r=", b"r=n")):
        with pytest.raises(NotAuthorized):
            again.step(words)


@pytest.mark.parametrize("wrong", [("r=", "r=other"), ("c=biws", "c=eSws"), ("c=biws,", "")])
def test_row_79_a_proof_of_another_exchange_is_refused_though_its_password_is_right(wrong: tuple[str, str]) -> None:
    """RFC 5802, 5.1: the nonce that a client says at last, and the header that it repeats, are those of this one."""
    other = ScramServer(find, entropy)
    bare = "n=m=2Ci=3Da,r=nonce"
    challenge = other.step(f"n,,{bare}".encode()).data.decode()
    nonce = challenge.split(",")[0]
    key = sasl.keyed(sasl.salted("s3kr=t,", b"salt", COUNT), b"Client Key")

    def final(without: str) -> bytes:
        signed = sasl.keyed(sasl.digest(key), f"{bare},{challenge},{without}".encode())
        return f"{without},p={sasl._b64(sasl._xor(key, signed))}".encode()

    right = f"c=biws,{nonce}"
    with pytest.raises(NotAuthorized, match="not known, or the password is wrong"):
        other.step(final(right.replace(*wrong)))
    assert other.step(final(right)).user == "m,i=a"


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    client, other = Client(SCRAM, "m,i=a", "s3kr=t,", entropy), ScramServer(find, entropy)
    client.answer(other.step(client.first()).data)
    for wrong in (b"v=" + b"A" * 43 + b"=", b"", b"e=other-error"):
        with pytest.raises(NotAuthorized):
            client.finish(wrong)
    for challenge in (b"r=somebody else,s=AAAA,i=4096", b"r=,i=0", b"", b"\xff", b"i=99999999999", "i=²".encode()):
        with pytest.raises(NotAuthorized):
            Client(SCRAM, "mia", "x", entropy).answer(challenge)


@given(mechanism=st.sampled_from([PLAIN, SCRAM, EXTERNAL]), said=st.lists(st.binary(max_size=80), max_size=4))
def test_garbage_is_refused(mechanism: str, said: list[bytes]) -> None:
    """Row 79."""
    other = server(mechanism, find, entropy, "mia")
    try:
        for data in said:
            assert other.step(data).user in (None, "mia")
    except NotAuthorized:
        pass


def place_of_users() -> tuple[SimDisk, Location]:
    disk = SimDisk()
    location = locations.find("QM1", "/data")
    make_dirs(disk, location.data_dir)
    return disk, location


def test_one_user_at_a_time_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one that another command has set meanwhile would be lost."""
    monkeypatch.setattr(mqsini, "LOCK_TRIES", 2)
    disk, location = place_of_users()
    users = Users(disk, location)
    users.set("mia", "x")
    other = disk.lock(f"{location.users}.lock", "pid 4711")
    for change in (lambda: users.set("eve", "x"), lambda: users.remove("mia")):
        with pytest.raises(InUse, match=r"users\.json is being changed: .*pid 4711"):
            change()
    assert users.names() == ["mia"]
    other.release()
    users.set("eve", "x")
    assert users.names() == ["eve", "mia"]


def test_a_user_who_is_said_to_be_gone_does_not_come_back() -> None:
    """Whatever a removal that was killed has left: the next one's answer holds after a power failure."""
    repeated = 0
    for moment in range(1, 30):
        disk, location = place_of_users()
        users = Users(disk, location)
        users.set("mia", "x")
        users.set("tom", "x")
        disk.crash_after(moment)
        try:
            users.remove("mia")
        except SimCrash:
            disk = disk.crash(KEEP_ALL)
        disk.no_crash()
        try:
            Users(disk, location).remove("mia")
        except Mistake:
            repeated += 1
        assert Users(disk.crash(LOSE_ALL), location).names() == ["tom"], moment
    assert repeated > 1


def test_the_file_of_users() -> None:
    disk, location = place_of_users()
    users = Users(disk, location)
    assert users.names() == []
    users.set("mia", "älter")
    users.set("tom", "x" * 1024)
    assert Users(disk, location).names() == ["mia", "tom"]
    sasl.check_password(users.find, entropy, "mia", "älter")
    users.set("mia", "new")
    with pytest.raises(NotAuthorized):
        sasl.check_password(users.find, entropy, "mia", "älter")
    users.remove("mia")
    for wrong in (lambda: users.remove("mia"), lambda: users.set("a b", "x")):
        with pytest.raises(Mistake):
            wrong()
    for password in ("", "x" * 1025, "a\0b", "not UTF-8: \udcff"):
        with pytest.raises(Mistake, match="text of 1 to 1024 bytes in UTF-8"):
            users.set("eve", password)
    for damaged in (b"", b"[]", b'{"format": 2}', b'{"format": 1, "users": {"mia": {}}}', b"\xff"):
        disk.poke(location.users, damaged)
        with pytest.raises(IniError, match="AMQ6162E"):
            users.find("mia")
