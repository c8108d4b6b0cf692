"""A stand-in for a data source that lacks a package: using it raises an error that names the package.

Spark looks for all sources at once. One that can't be loaded would hide all others, and be reported as unknown.
"""

from collections.abc import Mapping

from pyspark.sql.datasource import DataSource

from pipeline.session import INSTALL


def lacking(source: str, missing: ModuleNotFoundError) -> type[DataSource]:
    """A data source of this name that can't be used."""
    text = f"{source} needs {missing.name}, which is not installed where Spark runs; {INSTALL}"

    class Lacking(DataSource):
        def __init__(self, options: Mapping[str, str]) -> None:
            raise ModuleNotFoundError(text)

        @classmethod
        def name(cls) -> str:
            return source

    return Lacking
