"""The version of the package: the one place that has it, also where the package lies in a zip file.

This module imports nothing of the package, as none of its dependencies are installed during a build.
"""

VERSION = "0.1.0"
