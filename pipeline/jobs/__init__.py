"""The jobs, by name: `python -m pipeline JOB …`. A job is a module with NAME, HELP, `arguments` and `run`."""

import argparse
import importlib
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("history", "flow", "uows", "audit", "rebuild")


class Job(Protocol):
    """What the module of a job has."""

    NAME: str
    HELP: str  # one line, for the list of jobs

    @staticmethod
    def arguments(parser: argparse.ArgumentParser) -> None:
        """Say which words the job takes; those that all take are in `pipeline.jobs.common`."""

    @staticmethod
    def check(args: argparse.Namespace) -> None:
        """Refuse what can be known to be wrong before Spark is started. Raises what goes wrong."""

    @staticmethod
    def run(args: argparse.Namespace, spark: "SparkSession") -> int:
        """Do it; the exit status: 0 good, 10 differences or violations were found. Raises what goes wrong."""


def job(name: str) -> Job:
    """The job of this name, imported now: the list of jobs needs no Spark. Raises ImportError, KeyError."""
    if name not in NAMES:
        raise KeyError(name)
    return cast(Job, importlib.import_module(f"pipeline.jobs.{name}"))
