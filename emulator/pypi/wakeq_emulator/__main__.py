"""Starts the emulator: `python -m wakeq_emulator`."""

import os
import signal
import subprocess
import sys

from wakeq_emulator import find


def main() -> None:
    command = [find(), *sys.argv[1:]]
    if sys.platform == "win32":
        # The console tells the emulator to end, and this process waits for that.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.exit(subprocess.run(command).returncode)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
