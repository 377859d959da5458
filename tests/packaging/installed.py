"""Looks at the package as it is installed, from anywhere but its sources; ends with 1 if something is wrong.

python installed.py compiled|interpreted
"""

from __future__ import annotations

import sys
from importlib.resources import files

import pyflinkstate as ps


def main() -> None:
    assert ps.compiled == (sys.argv[1] == "compiled"), ps.__file__
    assert ps.__version__.count(".") == 2
    for name in ps.__all__:
        getattr(ps, name)
    for data in ("py.typed", "monitor/web/page/index.html", "runtime/spark/log4j2-quiet.properties"):
        assert files("pyflinkstate").joinpath(data).is_file(), data
    print(f"pyflinkstate {ps.__version__}, {sys.argv[1]}, {len(ps.__all__)} names")


if __name__ == "__main__":
    main()
