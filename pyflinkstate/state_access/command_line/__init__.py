"""The command line ``pyflinkstate``: looks into checkpoints from a terminal or a script."""

from pyflinkstate.state_access.command_line.arguments import main as main
