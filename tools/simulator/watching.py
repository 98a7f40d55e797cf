"""What a run hears of the brokers' logs: warnings go into the diary, tracebacks are violations."""

import logging
import traceback
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import LogEvent, globalLogBeginner, globalLogPublisher

if TYPE_CHECKING:
    from .world import World

_NAME: Final = "kafkalike"
_MAX_TEXT: Final = 4000


def quiet_twisted() -> None:
    """Unless somebody has begun to log: Twisted keeps nothing, and prints no errors that nobody
    waited for.

    During a run those are violations.  Those of its end mean nothing: when memory is given back,
    coroutines are closed in any order, and one that is closed already may be what another fails
    ("cannot reuse already awaited coroutine").
    """
    if getattr(globalLogBeginner, "_temporaryObserver", None) is not None:
        globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)


class Listener(logging.Handler):
    """Attached to the product's loggers for the time of one run."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.world: World | None = None
        self._level = logging.NOTSET
        self._propagate = True
        self._handlers: list[logging.Handler] = []
        self._observer: Any = self.unhandled

    def attach(self) -> None:
        quiet_twisted()
        logger = logging.getLogger(_NAME)
        self._level, self._propagate = logger.level, logger.propagate
        self._handlers = list(logger.handlers)
        logger.handlers = [self]
        logger.setLevel(logging.WARNING)
        logger.propagate = False
        globalLogPublisher.addObserver(self._observer)

    def mute(self) -> None:
        """The run is over: what is said while it is taken apart is no news."""
        self.world = None

    def detach(self) -> None:
        logger = logging.getLogger(_NAME)
        logger.handlers = self._handlers
        logger.setLevel(self._level)
        logger.propagate = self._propagate
        globalLogPublisher.removeObserver(self._observer)

    def emit(self, record: logging.LogRecord) -> None:
        world = self.world
        if world is None:
            return
        process = world.clock.current
        if process is not None and process.is_dead:
            return
        where = "world" if process is None else process.name
        text = record.getMessage()
        world.trace("log", host=where, level=record.levelname, text=text)
        if record.exc_info and record.exc_info[1] is not None:
            lines = "".join(traceback.format_exception(record.exc_info[1]))[-_MAX_TEXT:]
            world.broken("error", f"{where}: {text}\n{lines}")

    def unhandled(self, event: LogEvent) -> None:
        """A failure that was never looked at: somebody forgot it."""
        world, failure = self.world, event.get("log_failure")
        if world is None or failure is None:
            return
        process = world.clock.current
        if process is None or not process.is_dead:
            world.broken("error", f"unhandled: {failure.getTraceback()[-_MAX_TEXT:]}")
