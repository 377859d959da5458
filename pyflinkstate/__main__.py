"""``python -m pyflinkstate``: the command line, as the script ``pyflinkstate``."""

from __future__ import annotations

import sys

from pyflinkstate.state_access.command_line import main

if __name__ == "__main__":
    sys.exit(main())
