"""Finds the Pub/Sub emulator, which this package brings as a binary."""

import os
import sys
import sysconfig

__all__ = ["find"]


def find() -> str:
    """The path of the binary."""
    name = "pubsub-emulator.exe" if sys.platform == "win32" else "pubsub-emulator"
    package = os.path.dirname(os.path.abspath(__file__))
    folders = [
        # `pip install --target FOLDER`
        os.path.join(os.path.dirname(package), "bin"),
        sysconfig.get_path("scripts"),
        # `pip install --user`
        sysconfig.get_path("scripts", scheme=sysconfig.get_preferred_scheme("user")),
    ]
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    raise FileNotFoundError(f"{name} is in none of {', '.join(folders)}: install wakeq-emulator again")
