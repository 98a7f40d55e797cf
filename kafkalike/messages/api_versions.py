"""The first question of every connection: which APIs in which versions (KIP-35, KIP-511, KIP-584)."""

from kafkalike.protocol.primitives import int16, int32, int64
from kafkalike.protocol.struct import Request, Response, Struct, field


class ApiVersionsRequest(Request, key=18, versions=(0, 4), flexible=3):
    """Ask for the served APIs; allowed before authentication.

    v3: name and version of the client software (KIP-511).  v4: says that the client copes with
    features whose lowest version is 0.
    A version above the highest is still answered, in the form of v0, from the header alone.
    """

    client_software_name: str = field(since=3, default="", ignorable=True)
    client_software_version: str = field(since=3, default="", ignorable=True)


class ApiVersionsResponse(Response, key=18, versions=(0, 4), flexible=3):
    """The served APIs and cluster features.  Its header is never flexible.

    v1: throttle time.  v3: features, as tagged fields (KIP-584).  v4: as v3, with lowest version 0.
    """

    class ApiVersion(Struct):
        """One API with its lowest and highest version."""

        api_key: int16 = 0
        min_version: int16 = 0
        max_version: int16 = 0

    class SupportedFeatureKey(Struct):
        name: str = ""
        min_version: int16 = 0
        max_version: int16 = 0

    class FinalizedFeatureKey(Struct):
        name: str = ""
        max_version_level: int16 = 0
        min_version_level: int16 = 0

    error_code: int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: int32 = field(since=1, default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(
        since=3, tag=0, default=[], ignorable=True
    )
    finalized_features_epoch: int64 = field(since=3, tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field(
        since=3, tag=2, default=[], ignorable=True
    )
    zk_migration_ready: bool = field(since=3, tag=3, default=False, ignorable=True)
