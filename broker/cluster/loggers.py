"""Log levels as configuration: the broker-logger resource (KIP-412).

Python's loggers under `kafkalike` stand for Kafka's; `root` is the parent of all of them.  Levels go by
Kafka's names.
"""

import logging
from collections.abc import Iterable
from typing import Final

from kafkalike.config import ConfigEntry, ConfigSource, ConfigSynonym
from kafkalike.errors import InvalidConfig, InvalidRequest

from .config_admin import AlterOperation, ConfigChange

ROOT: Final = "root"
TRACE: Final = 5

_LEVELS: Final = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


class Loggers:
    """The loggers of this process below one name."""

    def __init__(self, top: str = "kafkalike") -> None:
        self._top = top

    def _find(self) -> dict[str, logging.Logger]:
        found = {ROOT: logging.getLogger(self._top)}
        prefix = self._top + "."
        for name, logger in list(logging.root.manager.loggerDict.items()):
            if name.startswith(prefix) and isinstance(logger, logging.Logger):
                found[name] = logger
        return found

    def describe(self) -> list[ConfigEntry]:
        """Every logger with its effective level, sorted by name."""
        entries = []
        for name, logger in sorted(self._find().items()):
            level = level_name(logger.getEffectiveLevel())
            source = ConfigSource.DYNAMIC_BROKER_LOGGER
            synonyms = (ConfigSynonym(name, level, source),)
            entries.append(ConfigEntry(name, level, None, source, False, False, synonyms))
        return entries

    def alter(self, changes: Iterable[ConfigChange], *, validate_only: bool) -> None:
        """Set or unset levels, all or none.

        Raises InvalidConfig (unknown logger or level), InvalidRequest (operation).
        """
        known = self._find()
        levels: list[tuple[logging.Logger, int]] = []
        for change in changes:
            logger = known.get(change.name)
            if logger is None:
                raise InvalidConfig(f"Logger {change.name} does not exist!")
            if change.operation is AlterOperation.SET:
                level = _LEVELS.get((change.value or "").upper())
                if level is None:
                    raise InvalidConfig(
                        f"Log level {change.value} of logger {change.name} is unknown,"
                        f" expected one of {', '.join(_LEVELS)}"
                    )
                levels.append((logger, level))
            elif change.operation is AlterOperation.DELETE:
                if change.name == ROOT:
                    raise InvalidRequest(
                        f"Removing the log level of the {ROOT} logger is not allowed"
                    )
                levels.append((logger, logging.NOTSET))
            else:
                raise InvalidRequest(
                    f"{change.operation.name} operation is not allowed for the BROKER_LOGGER resource"
                )
        if not validate_only:
            for logger, level in levels:
                logger.setLevel(level)


def level_name(level: int) -> str:
    """Kafka's name of the highest of its levels that is not above `level`."""
    best = "TRACE"
    for name, value in _LEVELS.items():
        if value <= level:
            best = name
    return best
