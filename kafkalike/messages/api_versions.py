"""api_versions."""

from kafkalike.protocol.primitives import int16, int32, int64
from kafkalike.protocol.struct import Request, Response, Struct, field


class ApiVersionsRequest(Request, key=18, versions=(0, 4), flexible=3):
    client_software_name: str = field(since=3, default="", ignorable=True)
    client_software_version: str = field(since=3, default="", ignorable=True)


class ApiVersionsResponse(Response, key=18, versions=(0, 4), flexible=3):
    class ApiVersion(Struct):
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
