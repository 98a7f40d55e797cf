"""ApiVersions v0-4: what this broker serves.

Promises: the list is exactly the routes of the node; answered before authentication.  A version that
is not served gets an answer in the form of version 0 with error 35 that lists only ApiVersions itself
(the dispatcher asks `unsupported_version` for it), so that any client can find a common version.
KIPs: 35, 511 (client software name and version).
Reference: inter-broker 5, apis 1, observed "Where the original surprises" 2.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from kafkalike.errors import NONE, InvalidRequest, UnsupportedVersion
from kafkalike.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkalike.messages.catalog import ApiKey

from .request import RequestContext, Route, route

SOFTWARE_SINCE: Final = 3
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_ApiVersion = ApiVersionsResponse.ApiVersion


def _no_features() -> int:
    return -1


class ApiVersionsApi:
    """Answers from the routes given to `serve`, which include its own."""

    def __init__(self, finalized_features_epoch: Callable[[], int] = _no_features) -> None:
        """`finalized_features_epoch`: data version of /feature, -1 when there is none."""
        self._finalized_features_epoch = finalized_features_epoch
        self._served: list[ApiVersionsResponse.ApiVersion] = []

    def routes(self) -> list[Route]:
        return [route(ApiVersionsRequest, self.api_versions)]

    def serve(self, routes: Sequence[Route]) -> None:
        """From now on answer with these."""
        self._served = [
            _ApiVersion(
                api_key=served.api_key,
                min_version=served.min_version,
                max_version=served.max_version,
            )
            for served in sorted(routes, key=lambda served: served.api_key)
        ]

    def api_versions(self, request: ApiVersionsRequest, ctx: RequestContext) -> ApiVersionsResponse:
        if ctx.header.api_version >= SOFTWARE_SINCE:
            name, version = request.client_software_name, request.client_software_version
            if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
                raise InvalidRequest(
                    f"client software name {name!r} and version {version!r} must be letters, digits,"
                    " dashes and dots, with a letter or digit at both ends"
                )
            ctx.session.client_software_name = name
            ctx.session.client_software_version = version
        return ApiVersionsResponse(
            error_code=NONE,
            api_keys=self._served,
            finalized_features_epoch=self._finalized_features_epoch(),
        )


def unsupported_version(served: Route | None) -> ApiVersionsResponse:
    """The answer, to be encoded in version 0, to an ApiVersions request of an unknown version."""
    low, high = (served.min_version, served.max_version) if served else (0, 0)
    return ApiVersionsResponse(
        error_code=UnsupportedVersion.code,
        api_keys=[_ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=low, max_version=high)],
    )
