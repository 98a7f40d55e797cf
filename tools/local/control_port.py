"""The control port: the verbs of a local cluster over HTTP and JSON, for tests in any language.

    GET  /ready        200 and the facts once every broker serves, 503 before
    GET  /VERB?k=v     a verb that only asks or waits (`verbs.ASKING`)
    POST /VERB         any verb, a JSON object of arguments; answers {"result": ...}

Errors are {"error": text}: 400 wrong arguments or not possible now, 404 no such verb, 405 a verb
that acts asked for with another method than POST, 504 what was waited for did not come true.  It
listens on 127.0.0.1 only and needs no password: who reaches it could also signal the processes.
"""

import inspect
import json
import traceback
import types
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, get_args, get_origin, get_type_hints

from twisted.internet.error import CannotListenError
from twisted.web.http import (
    BAD_REQUEST,
    FORBIDDEN,
    GATEWAY_TIMEOUT,
    INTERNAL_SERVER_ERROR,
    NOT_ALLOWED,
    NOT_FOUND,
)
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from kafkalike.net.client import PeerError
from kafkalike.runtime.tasks import TimedOut, as_deferred
from kafkalike.zk.client import ZkError

from .. import cli
from ..listeners import who_listens
from ..local_cluster import LocalCluster
from .layout import HOST
from .verbs import ASKING, Verbs, WaitTimeout

MAX_BODY_BYTES: Final = 1 << 20
SERVICE_UNAVAILABLE: Final = 503
Verb = Callable[..., Awaitable[Any]]


class ArgumentError(Exception):
    """The arguments of a verb are not what it takes."""


class ControlPort:
    """Serves one cluster.  `shutdown` stops everything."""

    def __init__(self, cluster: LocalCluster, shutdown: Callable[[], None]) -> None:
        self._cluster = cluster
        self._verbs = Verbs(cluster)
        self._shutdown = shutdown
        self._listening: Any = None
        self._table: dict[str, Verb] = {
            name: function
            for name, function in inspect.getmembers(self._verbs, inspect.iscoroutinefunction)
            if not name.startswith("_")
        }
        self._table["shutdown"] = self._stop

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._listening.getHost().port}"

    def listen(self, port: int) -> None:
        """Raises CommandError for a port that is taken."""
        site = Site(_Root(self))
        site.noisy = False
        site.displayTracebacks = False
        try:
            self._listening = self._cluster.reactor.listenTCP(port, site, interface=HOST)
        except CannotListenError as error:
            raise cli.CommandError(
                f"--control-port {port}: {error.socketError.strerror}{who_listens(port)}; 0 takes any"
            ) from error

    def close(self) -> None:
        """Take no more requests.  Those in progress end with the process."""
        self._verbs.close()
        if self._listening is not None:
            self._listening.stopListening()

    async def _stop(self) -> None:
        """Stop the cluster and the process that runs it."""
        self._cluster.reactor.callLater(0.0, self._shutdown)

    async def call(self, verb: str, arguments: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """(HTTP status, answer)"""
        function = self._table.get(verb)
        if function is None:
            known = ", ".join(sorted(self._table))
            return NOT_FOUND, {"error": f"no verb {verb!r}; there are {known}"}
        try:
            return 200, {"result": await function(**checked_arguments(function, arguments))}
        except WaitTimeout as error:
            return GATEWAY_TIMEOUT, {"error": str(error)}
        except (
            ArgumentError,
            cli.CommandError,
            PeerError,
            TimedOut,
            ZkError,
            OSError,
        ) as error:
            return BAD_REQUEST, {"error": str(error)}
        except Exception as error:
            traceback.print_exc()
            return INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}: {error}"}

    async def ask(
        self, verb: str, query: Mapping[bytes, Sequence[bytes]]
    ) -> tuple[int, dict[str, Any]]:
        """`call` with arguments from a URL."""
        function = self._table.get(verb)
        arguments = {} if function is None else query_arguments(function, query)
        return await self.call(verb, arguments)

    def methods(self, verb: str) -> tuple[str, ...]:
        """The HTTP methods that a path takes; what does not exist may be asked for in any way."""
        if verb in ("", "ready"):
            return ("GET", "HEAD")
        if verb in ASKING or verb not in self._table:
            return ("GET", "HEAD", "POST")
        return ("POST",)

    async def ready(self) -> tuple[int, dict[str, Any]]:
        facts = await self._verbs.info()
        return (200 if self._cluster.is_ready else SERVICE_UNAVAILABLE), facts


def checked_arguments(function: Verb, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments as the verb takes them.  Raises ArgumentError naming the one that is wrong."""
    parameters = inspect.signature(function).parameters
    hints = get_type_hints(function)
    for name in arguments:
        if name not in parameters:
            known = ", ".join(parameters) or "nothing"
            raise ArgumentError(f"{name}: not an argument; expected {known}")
    for name, parameter in parameters.items():
        if name not in arguments:
            if parameter.default is inspect.Parameter.empty:
                raise ArgumentError(f"{name}: missing")
        elif not _fits(arguments[name], hints[name]):
            text = json.dumps(arguments[name])
            raise ArgumentError(f"{name}: expected {_describe(hints[name])}, found {text}")
    return arguments


def query_arguments(function: Verb, query: Mapping[bytes, Sequence[bytes]]) -> dict[str, Any]:
    """The arguments in a URL: JSON where it is such, unless the verb takes the text as it is."""
    hints = get_type_hints(function)
    arguments: dict[str, Any] = {}
    for key, values in query.items():
        name, text = key.decode(errors="replace"), values[-1].decode(errors="replace")
        value = _guess(text)
        hint = hints.get(name, Any)
        if hint is not Any and not _fits(value, hint) and _fits(text, hint):
            value = text
        arguments[name] = value
    return arguments


def _fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is types.UnionType:
        return any(_fits(value, one) for one in get_args(hint))
    if hint is type(None):
        return value is None
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin is list:
        (item,) = get_args(hint)
        return isinstance(value, list) and all(_fits(one, item) for one in value)
    if origin is not None:
        return isinstance(value, dict)
    return isinstance(value, hint)


def _describe(hint: Any) -> str:
    if get_origin(hint) is types.UnionType:
        return " or ".join(_describe(one) for one in get_args(hint))
    if hint is type(None):
        return "null"
    if get_origin(hint) is list:
        return f"a list of {_describe(get_args(hint)[0])}"
    names = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
    return names.get(hint, "an object")


class _Root(Resource):
    """Everything is one resource: the path is the verb."""

    isLeaf = True

    def __init__(self, port: ControlPort) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._port = port

    def render(self, request: Request) -> Any:
        """A method that would surprise is refused: a link that is followed changes nothing."""
        verb, method = _verb(request), request.method.decode("ascii", "replace")
        allowed = self._port.methods(verb)
        if method not in allowed:
            request.setHeader(b"allow", ", ".join(allowed).encode())
            text = f"{verb or '/'}: expected {' or '.join(allowed)}, found {method}"
            return _send(request, NOT_ALLOWED, {"error": text})
        if method != "POST":
            return self._get(request)
        origin = request.getHeader(b"origin")
        if origin is not None:
            # Only browsers send it, for a page that may come from anywhere.
            text = f"not for web pages: found Origin {origin.decode(errors='replace')}"
            return _send(request, FORBIDDEN, {"error": text})
        return self._post(request)

    def _get(self, request: Request) -> Any:
        verb = _verb(request)
        if verb in ("", "ready"):
            return self._answer(request, self._port.ready())
        return self._answer(request, self._port.ask(verb, request.args))

    def _post(self, request: Request) -> Any:
        content: Any = request.content
        body = content.read(MAX_BODY_BYTES + 1)
        try:
            if len(body) > MAX_BODY_BYTES:
                raise ValueError(f"more than {MAX_BODY_BYTES} bytes")
            arguments = json.loads(body) if body.strip() else {}
            if not isinstance(arguments, dict):
                raise ValueError("expected an object")
        except (ValueError, RecursionError) as error:
            return _send(request, BAD_REQUEST, {"error": f"body: {error}"})
        return self._answer(request, self._port.call(_verb(request), arguments))

    def _answer(self, request: Request, work: Any) -> Any:
        gone: list[bool] = []
        # Whoever hangs up does not stop what was begun.
        request.notifyFinish().addErrback(lambda _: gone.append(True))

        def done(result: tuple[int, dict[str, Any]]) -> None:
            if not gone:
                request.write(_send(request, *result))
                request.finish()

        as_deferred(work).addCallback(done)
        return NOT_DONE_YET


def _verb(request: Request) -> str:
    return str(request.path.decode("ascii", "replace")).strip("/").replace("-", "_")


def _guess(text: str) -> Any:
    """A value of a query: JSON where it is such, else a string."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _send(request: Request, status: int, answer: dict[str, Any]) -> bytes:
    body = json.dumps(answer).encode() + b"\n"
    request.setResponseCode(status)
    request.setHeader(b"content-type", b"application/json")
    request.setHeader(b"content-length", str(len(body)).encode())
    return body
