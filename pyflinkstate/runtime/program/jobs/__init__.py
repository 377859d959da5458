"""What an environment consists of besides its settings: its jobs, where they start, and their monitor."""

from pyflinkstate.runtime.program.jobs.jobs import Jobs
from pyflinkstate.runtime.program.jobs.start_points import LATEST

__all__ = ["LATEST", "Jobs"]
