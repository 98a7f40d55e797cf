"""Reading and changing settings of brokers, topics and loggers."""

from kafkalike.protocol.primitives import int8, int16, int32
from kafkalike.protocol.struct import Request, Response, Struct, field


class DescribeConfigsRequest(Request, key=32, versions=(0, 4), flexible=4):
    """Ask for settings of topics, brokers and loggers (KIP-133).

    v1: with synonyms (KIP-226).  v3: with documentation.
    """

    class DescribeConfigsResource(Struct):
        # 2: topic; 4: broker; 8: logger.
        resource_type: int8 = 0
        resource_name: str = ""
        # Null asks for all.
        configuration_keys: list[str] | None = []

    resources: list[DescribeConfigsResource] = []
    include_synonyms: bool = field(since=1, default=False)
    include_documentation: bool = field(since=3, default=False)


class DescribeConfigsResponse(Response, key=32, versions=(0, 4), flexible=4):
    """Settings with their origin.

    v0: only whether the value is a default.  v1: origin and synonyms.  v3: type and documentation.
    """

    class DescribeConfigsResult(Struct):
        class DescribeConfigsResourceResult(Struct):
            class DescribeConfigsSynonym(Struct):
                name: str = ""
                value: str | None = ""
                source: int8 = 0

            name: str = ""
            value: str | None = ""
            read_only: bool = False
            is_default: bool = field(until=0, default=False)
            # 1: topic; 2: broker, dynamic; 3: all brokers, dynamic; 4: broker, static; 5: default;
            # 6: logger.
            config_source: int8 = field(since=1, default=-1, ignorable=True)
            is_sensitive: bool = False
            synonyms: list[DescribeConfigsSynonym] = field(since=1, default=[], ignorable=True)
            config_type: int8 = field(since=3, default=0, ignorable=True)
            documentation: str | None = field(since=3, default="", ignorable=True)

        error_code: int16 = 0
        error_message: str | None = ""
        resource_type: int8 = 0
        resource_name: str = ""
        configs: list[DescribeConfigsResourceResult] = []

    throttle_time_ms: int32 = 0
    results: list[DescribeConfigsResult] = []


class AlterConfigsRequest(Request, key=33, versions=(0, 2), flexible=2):
    """Replace all settings of a resource (KIP-133)."""

    class AlterConfigsResource(Struct):
        class AlterableConfig(Struct):
            name: str = ""
            value: str | None = ""

        resource_type: int8 = 0
        resource_name: str = ""
        configs: list[AlterableConfig] = []

    resources: list[AlterConfigsResource] = []
    validate_only: bool = False


class AlterConfigsResponse(Response, key=33, versions=(0, 2), flexible=2):
    """One result for each resource."""

    class AlterConfigsResourceResponse(Struct):
        error_code: int16 = 0
        error_message: str | None = ""
        resource_type: int8 = 0
        resource_name: str = ""

    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


class IncrementalAlterConfigsRequest(Request, key=44, versions=(0, 1), flexible=1):
    """Change single settings of a resource (KIP-339)."""

    class AlterConfigsResource(Struct):
        class AlterableConfig(Struct):
            name: str = ""
            # 0: set; 1: delete; 2: append; 3: subtract.
            config_operation: int8 = 0
            value: str | None = ""

        resource_type: int8 = 0
        resource_name: str = ""
        configs: list[AlterableConfig] = []

    resources: list[AlterConfigsResource] = []
    validate_only: bool = False


class IncrementalAlterConfigsResponse(Response, key=44, versions=(0, 1), flexible=1):
    """One result for each resource."""

    class AlterConfigsResourceResponse(Struct):
        error_code: int16 = 0
        error_message: str | None = ""
        resource_type: int8 = 0
        resource_name: str = ""

    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = []
