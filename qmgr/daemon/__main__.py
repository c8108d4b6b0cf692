"""`python -m qmgr.daemon QMgrName [data-path]`: what `strmqm --foreground` does, for those who start processes."""

import sys

from qmgr.daemon.starting import foreground


def main() -> int:
    """Run the queue manager until it has ended; the exit code of strmqm."""
    words = sys.argv[1:]
    if not 1 <= len(words) <= 2 or words[0].startswith("-"):
        print("AMQ7006E: say python -m qmgr.daemon QMgrName [data-path].", file=sys.stderr)
        return 39
    code, text = foreground(words[0], words[1] if len(words) == 2 else None)
    if text:
        print(" ".join(text.split("\n")), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
