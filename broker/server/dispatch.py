"""From a request's bytes to its answer's bytes: header, route, decode, handler, encode."""

import logging
from collections.abc import Sequence

from kafkalike.metrics import Metrics
from kafkalike.runtime.ports import Clock

from ..handlers.request import Route


class Dispatcher:
    """Knows what the broker serves; one for all connections of a node."""

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        clock: Clock,
        metrics: Metrics,
        logger: logging.Logger,
    ) -> None:
        raise NotImplementedError
