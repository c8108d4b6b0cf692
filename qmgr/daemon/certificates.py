"""The validity periods of certificates, read from their bytes: Python's ssl tells only that of a connected peer.

A certificate in DER is elements in elements, each a tag, a length and what it holds. Only what comes before the two
times is passed over; whether the rest is right is for OpenSSL to say.

    Certificate { TBSCertificate { [0] version, serialNumber, signature, issuer, validity { notBefore, notAfter } …
"""

import datetime
import re
import ssl

PEM = re.compile(b"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----(.*?)-----END", re.DOTALL)
VERSION, UTC_TIME = 0xA0, 0x17
LONG = 0x80  # in the first byte of a length: so many bytes of length follow

Span = tuple[datetime.datetime, datetime.datetime]


def spans(pem: bytes) -> list[Span]:
    """The validity period of each certificate, in the order of the file; what can't be read as one is left out."""
    found = []
    for match in PEM.finditer(pem):
        text = match[1].decode("ascii", "replace").strip()
        try:
            found.append(span(ssl.PEM_cert_to_DER_cert(f"{ssl.PEM_HEADER}\n{text}\n{ssl.PEM_FOOTER}\n")))
        except (ValueError, IndexError):
            continue
    return found


def span(der: bytes) -> Span:
    """The validity period of one certificate. Raises ValueError, IndexError for what is none."""
    at = _inside(der, _inside(der, 0))
    if der[at] == VERSION:
        at = _behind(der, at)
    for _ in ("serialNumber", "signature", "issuer"):
        at = _behind(der, at)
    first = _inside(der, at)
    return _moment(der, first), _moment(der, _behind(der, first))


def _moment(der: bytes, at: int) -> datetime.datetime:
    text = der[_inside(der, at) : _behind(der, at)].decode("ascii")
    if der[at] == UTC_TIME:  # two digits of the year, from 1950 on
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=datetime.UTC)


def _inside(der: bytes, at: int) -> int:
    """Where the content begins of the element at `at`: behind its tag and its length."""
    return at + 2 + (der[at + 1] & ~LONG if der[at + 1] & LONG else 0)


def _behind(der: bytes, at: int) -> int:
    """Where the element at `at` ends, and the next one begins."""
    inside = _inside(der, at)
    length = int.from_bytes(der[at + 2 : inside], "big") if der[at + 1] & LONG else der[at + 1]
    return inside + length
