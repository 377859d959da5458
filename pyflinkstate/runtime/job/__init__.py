"""The master of a job, in the driver: its attempts and epochs, what slots run, what listeners are told."""

from pyflinkstate.runtime.job.job import Job
from pyflinkstate.runtime.job.job_settings import JobSettings
from pyflinkstate.runtime.job.observe import EpochStats, JobExecutionResult, JobListener
from pyflinkstate.runtime.job.progress import ProgressLine

__all__ = ["EpochStats", "Job", "JobExecutionResult", "JobListener", "JobSettings", "ProgressLine"]
