"""The state of a link: what happens to bytes on their way in one direction."""

from dataclasses import dataclass
from typing import Final


@dataclass(slots=True, frozen=True)
class Direction:
    """Bytes are held back while `cut`, else they arrive `delay_s` late."""

    cut: bool = False
    delay_s: float = 0.0


OPEN: Final = Direction()

SUPERVISOR_CLIENT_ID: Final = "kafkalike-up"
"""Client id of the supervisor's own questions, which no fault may meet."""
