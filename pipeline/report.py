"""Reports: what a job has found, as lines, tables and charts in a folder. Knows nothing of Spark or of logs."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEXT = "report.txt"
CHART_INCHES = (10.0, 4.0)
DOTS_PER_INCH = 110
FORMATS = ["%Y", "%b %Y", "%d %b", "%H:%M", "%H:%M", "%H:%M:%S.%f"]  # of ticks at years, months, days … seconds


def new_chart(title: str) -> "tuple[Figure, Axes]":
    """An empty chart, to be drawn on and given to `Report.chart`. No window is ever opened."""
    from matplotlib.figure import Figure  # not pyplot, which keeps figures and looks for a screen

    figure = Figure(figsize=CHART_INCHES, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title)
    return figure, axes


def over_time(axes: "Axes") -> None:
    """Let the x axis be one of moments, UTC, which is read together with the date at its end."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(locator, formats=FORMATS, zero_formats=FORMATS)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formatter)
    axes.set_xlabel("UTC")


def shown(value: object) -> str:
    """A value as a report has it: whole numbers with thousands apart, others with at most three decimals."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return str(value)


def named(number: int | None) -> str | None:
    """A number that is the name of something, such as a unit of work: written so that it can be put into a filter."""
    return None if number is None else str(number)


def lines_of(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A table as text: columns as wide as they must be, numbers to the right."""
    cells = [list(row) for row in rows]
    texts = [list(headers), *([shown(cell) for cell in row] for row in cells)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(headers))]
    numeric = [
        bool(cells) and all(row[column] is None or _is_number(row[column]) for row in cells)
        for column in range(len(headers))
    ]

    def line(row: Sequence[str]) -> str:
        parts = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        )
        return "  ".join(parts).rstrip()

    return [line(texts[0]), line(["-" * width for width in widths]), *map(line, texts[1:])]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@attrs.define
class Report:
    """Text in the order in which it was said, and charts beside it."""

    title: str
    lines: list[str] = attrs.field(factory=list, init=False)
    charts: "dict[str, Figure]" = attrs.field(factory=dict, init=False)

    def line(self, text: str = "") -> None:
        self.lines.append(text)

    def heading(self, text: str) -> None:
        self.lines += ["", text, "=" * len(text)]

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Values as they are: numbers are written as `shown` has them."""
        self.lines += lines_of(headers, rows)

    def table_or_none(self, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """The same, and without rows a word that says so."""
        if rows:
            self.table(headers, rows)
        else:
            self.line("None.")

    def chart(self, name: str, figure: "Figure") -> None:
        """Keep the figure (of matplotlib) as `name`.png beside the text, which names it here."""
        self.charts[name] = figure
        self.lines.append(f"chart: {name}.png")

    def text(self) -> str:
        return "\n".join([self.title, "#" * len(self.title), *self.lines, ""])

    def save(self, folder: str | Path) -> list[str]:
        """Write the charts and `report.txt` into a folder; their names, the text last. Raises OSError."""
        new = file = Path(folder, f"{TEXT}.new")
        try:
            for name, figure in self.charts.items():
                file = Path(folder, f"{name}.png")
                figure.savefig(file, dpi=DOTS_PER_INCH)
            file = new
            new.write_bytes(self.text().encode())  # with the same permissions as the charts
            new.replace(Path(folder, TEXT))
        except OSError as exc:
            exc.filename = exc.filename or str(file)  # a full disk names none
            new.unlink(missing_ok=True)
            raise
        return [*(f"{name}.png" for name in self.charts), TEXT]

    def tell(self, folder: str | Path) -> Path:
        """Say where it is, and return the path."""
        path = Path(folder, TEXT)
        print(f"{self.title}: {path}", flush=True)
        return path

    def write(self, out: str | Path) -> Path:
        """Write `report.txt` and the charts into the folder `out`, say where, and return the path. Raises OSError."""
        Path(out).mkdir(parents=True, exist_ok=True)
        self.save(out)
        return self.tell(out)
