"""Finds the Pub/Sub emulator, which this package brings as a binary."""

import os
import sys
import sysconfig

__all__ = ["find"]


def find() -> str:
    """The path of the binary."""
    name = "pubsub-emulator.exe" if sys.platform == "win32" else "pubsub-emulator"
    packages = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    user = sysconfig.get_preferred_scheme("user")
    scripts = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", scheme=user)]
    if os.path.realpath(packages) == os.path.realpath(sysconfig.get_path("platlib", scheme=user)):
        # `pip install --user`: another package may have a binary of this name in the first one.
        scripts.reverse()
    # `pip install --target FOLDER`
    folders = [os.path.join(packages, "bin"), *scripts]
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    raise FileNotFoundError(f"{name} is in none of {', '.join(folders)}: install wakeq-emulator again")
