"""Certificates for tests, made by an authority of their own."""

import datetime
from pathlib import Path

import trustme


class Authority:
    """Signs certificates; `path` is its own, for those who trust it."""

    def __init__(self, directory: Path) -> None:
        self._authority = trustme.CA()
        self._directory = directory
        self.path = str(directory / "authority.pem")
        self._authority.cert_pem.write_to_path(self.path)

    def issue(self, name: str, **of_time: datetime.datetime) -> tuple[str, str]:
        """The paths of a certificate with this common name, and of its key; `of_time`: not_before, not_after."""
        made = self._authority.issue_cert(name, common_name=name, **of_time)
        certificate, key = (str(self._directory / f"{name}.{kind}") for kind in ("pem", "key"))
        for at, blob in enumerate(made.cert_chain_pems):
            blob.write_to_path(certificate, append=at > 0)
        made.private_key_pem.write_to_path(key)
        return certificate, key
