"""Starts the emulator: `python -m wakeq_emulator`."""

import os
import subprocess
import sys

from wakeq_emulator import find


def main() -> None:
    command = [find(), *sys.argv[1:]]
    if sys.platform == "win32":
        sys.exit(subprocess.run(command).returncode)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
