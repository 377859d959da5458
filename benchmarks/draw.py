"""Draws the recorded results: the tables in docs/benchmarks.md and README.md, and the charts.

    python benchmarks/draw.py              writes them
    python benchmarks/draw.py --check      ends with 1 if they are not what benchmarks/results has

``--results DIR`` takes other results, and ``--into DIR`` writes the documents and charts there. What has not
been recorded is left out, and said to be missing.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from report.charts import Results, drawn
from report.results import RESULTS, read_all
from report.tables import PARTS

ROOT = Path(__file__).parents[1]
PAGES = (Path("docs", "benchmarks.md"), Path("README.md"))
IMAGES = Path("docs", "images")
CHARTS = "benchmark-*.svg"

_BLANK_LINES, _ONE = re.compile(r"\n{3,}"), "\n\n"
_PART = re.compile(
    r"(?P<begin><!-- drawn by benchmarks/draw\.py: (?P<name>[\w ]+) -->\n).*?(?P<end><!-- drawn: end -->)",
    re.DOTALL,
)


def filled(text: str, results: Results) -> str:
    """Return a page with its drawn parts as the results are."""

    def part(found: re.Match[str]) -> str:
        lines = "\n".join(PARTS[found["name"]](results)).strip("\n")
        return f"{found['begin']}\n{_BLANK_LINES.sub(_ONE, lines)}\n\n{found['end']}"

    return _PART.sub(part, text)


def documents(results: Results) -> dict[Path, str]:
    """Return the pages and charts, by their paths below the checkout."""
    pages = {page: filled((ROOT / page).read_text(encoding="utf-8"), results) for page in PAGES}
    return pages | {IMAGES / name: text for name, text in drawn(results).items()}


def stale(wanted: dict[Path, str], root: Path) -> list[Path]:
    """Return the documents that are not as wanted, and the charts that should not be there."""
    there = {path.relative_to(root) for path in (root / IMAGES).glob(CHARTS)} | set(wanted)
    return sorted(path for path in there if _text(root / path) != wanted.get(path))


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def write(wanted: dict[Path, str], root: Path) -> None:
    """Write what is stale, and remove charts without results."""
    for path in stale(wanted, root):
        if path not in wanted:
            (root / path).unlink()
            continue
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(wanted[path], encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--into", type=Path, default=ROOT)
    args = parser.parse_args()
    wanted = documents(read_all(args.results))
    if not args.check:
        write(wanted, args.into)
    elif found := stale(wanted, args.into):
        names = ", ".join(map(str, found))
        sys.exit(f"{names}: not what the results are; run python benchmarks/draw.py")


if __name__ == "__main__":
    main()
