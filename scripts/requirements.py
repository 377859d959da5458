"""Print what pyproject.toml requires for some extras, one requirement a line: input of ``pip install -r``.

``build`` prints what the build needs, all else the package's dependencies and those of each extra. pip itself
reads them only together with the package, and installs nothing before it has compiled it.
"""

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:  # the parser that pip brings
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).parent.parent


def requirements(extras):
    """Return the requirements of the extras, or of the build."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    if extras == ["build"]:
        return pyproject["build-system"]["requires"]
    project = pyproject["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(required for extra in extras for required in optional[extra])]


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
