"""Who is to be told when a znode changes, over reconnects and new sessions.

A handler gets no payload: it means "what you read there may be out of date", and its owner reads
again (KAFKA-5502: state captured when a watch fired is wrong when it is used).  A watch is armed
by the read itself, so pass `arm(path)` to it:

    watches.on_children(paths.TOPICS, lambda: queue.put(TopicChange()))
    names = await list_topics(zk, watches.arm(paths.TOPICS))

Between the call of a handler and the next `arm` of its path further changes are swallowed: the read
that follows sees them all.  Nothing is lost: `arm` comes before the read, a lost connection within
a session keeps the watches, and after a new session every handler is called once because all
watches died with the old one (reference: zookeeper 5.3).
"""

import logging
from collections.abc import Callable

from .client import EventType, SessionState, Watch, WatchEvent, ZkClient

Handler = Callable[[], None]


class WatchSet:
    """The watches of one owner (a controller in office, a notification listener).

    Handlers are called on the loop and must only enqueue work.
    """

    def __init__(self, zk: ZkClient, logger: logging.Logger) -> None:
        self._zk = zk
        self._logger = logger
        self._data: dict[str, Handler] = {}
        self._children: dict[str, Handler] = {}
        self._told: set[tuple[bool, str]] = set()
        # Nobody tells it of an end that came before it was made.
        self._expired = zk.state is SessionState.EXPIRED
        zk.add_listener(self._state_changed)

    def on_change(self, path: str, handler: Handler) -> None:
        """Call `handler` after the node was created, deleted or set.  Replaces an earlier handler."""
        self._data[path] = handler
        self._told.discard((False, path))

    def on_children(self, path: str, handler: Handler) -> None:
        """Call `handler` after a child came or went, or the node itself went."""
        self._children[path] = handler
        self._told.discard((True, path))

    def forget(self, path: str) -> None:
        """No more calls for this path; a watch still armed on the server is ignored when it fires."""
        self._data.pop(path, None)
        self._children.pop(path, None)
        self._told.discard((False, path))
        self._told.discard((True, path))

    def arm(self, *paths: str) -> Watch:
        """The watch to give to a read of `paths`; call it right before that read.

        For one path or, with `multi_read`, for many.  Without a handler it is harmless.
        """
        for path in paths:
            self._told.discard((False, path))
            self._told.discard((True, path))
        return self._fired

    def clear(self) -> None:
        """Forget all handlers; the set can be used again."""
        self._data.clear()
        self._children.clear()
        self._told.clear()

    def close(self) -> None:
        """Forget all handlers for good."""
        self.clear()
        self._zk.remove_listener(self._state_changed)

    def _fired(self, event: WatchEvent) -> None:
        if event.type is not EventType.CHILDREN_CHANGED:
            self._tell(False, event.path)
        if event.type in (EventType.CHILDREN_CHANGED, EventType.DELETED):
            self._tell(True, event.path)

    def _tell(self, children: bool, path: str) -> None:
        handler = (self._children if children else self._data).get(path)
        if handler is None or (children, path) in self._told:
            return
        self._told.add((children, path))
        try:
            handler()
        except Exception:
            self._logger.exception("watch handler failed path=%s", path)

    def _state_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._expired = True
        elif state is SessionState.CONNECTED and self._expired:
            self._expired = False
            for path in list(self._data):
                self._tell(False, path)
            for path in list(self._children):
                self._tell(True, path)
