"""How a process of a chaos run is told to end: by SIGTERM, as often as it comes."""

import ctypes
import faulthandler
import signal
import time
from typing import Final

PR_SET_PDEATHSIG: Final = 1
LOOK_S: Final = 0.1


class Ending:
    """Set by SIGTERM; Ctrl-C is for the run, whose end is the end of this process in any case.

    A second signal is handled in the midst of the handler of the first: there must be no lock in it.
    With an Event one pair of signals in a thousand stood still for good.
    """

    def __init__(self) -> None:
        self._told = False
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        faulthandler.enable()
        signal.signal(signal.SIGTERM, self._tell)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _tell(self, _number: int, _frame: object) -> None:
        self._told = True

    def is_set(self) -> bool:
        return self._told

    def wait(self) -> None:
        while not self._told:
            time.sleep(LOOK_S)
