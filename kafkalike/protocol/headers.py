"""What stands before every message: request and response headers (reference: inter-broker 2).

A request header has version 0 (ControlledShutdown 0 only, no client id), 1, or 2 (flexible
messages, ends with tagged fields); a response header 0 or 1 (flexible).  Which one applies follows
from API key and version, so it can be told before anything else is read.
"""

from dataclasses import dataclass
from struct import Struct, error
from typing import Final

from kafkalike.runtime.ports import Buffer

from .primitives import REPLACE, MalformedMessage, read_uvarint

API_VERSIONS: Final = 18
CONTROLLED_SHUTDOWN: Final = 7

# fmt: off
FLEXIBLE_SINCE: Final[dict[int, int | None]] = {
    0: 9, 1: 12, 2: 6, 3: 9, 4: 4, 5: 2, 6: 6, 7: 3, 8: 8, 9: 6, 10: 3, 11: 6, 12: 4, 13: 4, 14: 4,
    15: 5, 16: 3, 17: None, 18: 3, 19: 5, 20: 4, 21: 2, 22: 2, 23: 4, 24: 3, 25: 3, 26: 3, 27: 1,
    28: 3, 29: 2, 30: 2, 31: 2, 32: 4, 33: 2, 34: 2, 35: 2, 36: 2, 37: 2, 38: 2, 39: 2, 40: 2,
    41: 2, 42: 2, 43: 2, 44: 1, 45: 0, 46: 0, 47: None, 48: 1, 49: 1, 50: 0, 51: 0, 56: 0, 57: 0,
    58: 0, 60: 0, 61: 0, 65: 0, 66: 0, 67: 0, 68: 0, 69: 0,
}
# fmt: on
"""First flexible version of every API (None = never), as the messages declare it.

Headers are read before the messages are known; a test keeps both equal.
"""

_FIXED: Final = Struct(">hhi")
_FIXED_AND_CLIENT: Final = Struct(">hhih")
_CORRELATION: Final = Struct(">i")


@dataclass(slots=True)
class RequestHeader:
    """Who asks what.  A client id that is null on the wire reads as "" (reference: broker-errors 2)."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str = ""


def request_header_version(api_key: int, api_version: int) -> int:
    """Header version of a request.  Raises MalformedMessage when the API key is not known."""
    try:
        flexible_since = FLEXIBLE_SINCE[api_key]
    except KeyError:
        raise MalformedMessage(
            f"request header: api key {api_key}, expected one that is served"
        ) from None
    if api_version == 0 and api_key == CONTROLLED_SHUTDOWN:
        return 0
    return 2 if flexible_since is not None and api_version >= flexible_since else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """Header version of a response; ApiVersions always has 0, for clients that know nothing yet."""
    if api_key == API_VERSIONS:
        return 0
    return 1 if request_header_version(api_key, api_version) == 2 else 0


def decode_request_header(frame: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """The header at `position` and the position of the body after it.

    The version is not checked against the served range.  Raises MalformedMessage, also for the
    header without client id when no two bytes of body follow it: there is no such request.
    """
    try:
        api_key, api_version, correlation_id, length = _FIXED_AND_CLIENT.unpack_from(
            frame, position
        )
        header_version = request_header_version(api_key, api_version)
        if header_version == 0:
            return RequestHeader(api_key, api_version, correlation_id), position + 8
        start = position + 10
        end = start + length if length > 0 else start
        if end > len(frame):
            raise MalformedMessage(
                f"request header: client_id of {length} bytes, but {len(frame) - start} are left"
            )
        client_id = str(frame[start:end], "utf-8", REPLACE)
        if header_version == 2:
            end = end + 1 if frame[end] == 0 else skip_tags(frame, end, "request header")
    except (error, IndexError):
        raise MalformedMessage(
            f"request header: {len(frame) - position} bytes, expected more"
        ) from None
    return RequestHeader(api_key, api_version, correlation_id, client_id), end


def encode_request_header(header: RequestHeader) -> bytes:
    """The header in the version that key and version ask for."""
    version = request_header_version(header.api_key, header.api_version)
    if version == 0:
        return _FIXED.pack(header.api_key, header.api_version, header.correlation_id)
    client_id = header.client_id.encode("utf-8", "replace")
    fixed = _FIXED_AND_CLIENT.pack(
        header.api_key, header.api_version, header.correlation_id, len(client_id)
    )
    return fixed + client_id + b"\0" if version == 2 else fixed + client_id


def encode_response_header(correlation_id: int, api_key: int, api_version: int) -> bytes:
    """The header of an answer to a request of that key and version."""
    packed = _CORRELATION.pack(correlation_id)
    return packed + b"\0" if response_header_version(api_key, api_version) else packed


def decode_response_header(
    frame: Buffer, api_key: int, api_version: int, position: int = 0
) -> tuple[int, int]:
    """Correlation id and the position of the body.  Raises MalformedMessage."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame, position)
        end = position + 4
        if response_header_version(api_key, api_version):
            end = skip_tags(frame, end, "response header")
    except (error, IndexError):
        raise MalformedMessage(
            f"response header: {len(frame) - position} bytes, expected more"
        ) from None
    return correlation_id, end


def skip_tags(data: Buffer, position: int, where: str) -> int:
    """The position after a tagged section none of whose tags means anything here.

    Raises IndexError when the data ends first, MalformedMessage naming `where` for a bad size.
    """
    count, position = read_uvarint(data, position)
    if count > 0x7FFFFFFF:
        return position  # negative to Kafka, which reads it as none
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        if size > len(data) - position:
            raise MalformedMessage(
                f"{where}: tagged field of {size} bytes, but {len(data) - position} are left"
            )
        position += size
    return position
