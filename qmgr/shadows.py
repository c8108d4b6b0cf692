"""Is `import logger` ours? A user's own module of that name would break the queue manager in obscure ways."""

import importlib.util
from pathlib import Path

PACKAGES = ("logger", "recovery")


def check() -> None:
    """Raise ImportError when a stranger stands in the place of one of our packages, naming its file."""
    home = Path(__file__).resolve().parent.parent
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        found = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if found != home / name / "__init__.py":
            raise ImportError(
                f"qmgr needs its own package {name!r} in {home / name}, but 'import {name}' finds "
                f"{found or 'nothing'}: rename that module, or take its folder off sys.path",
                name=name,
                path=str(found),
            )
