"""configs."""

from kafkalike.protocol.primitives import int8, int16, int32
from kafkalike.protocol.struct import Request, Response, Struct, field


class DescribeConfigsRequest(Request, key=32, versions=(0, 4), flexible=4):
    class DescribeConfigsResource(Struct):
        resource_type: int8 = 0
        resource_name: str = ""
        configuration_keys: list[str] | None = []

    resources: list[DescribeConfigsResource] = []
    include_synonyms: bool = field(since=1, default=False)
    include_documentation: bool = field(since=3, default=False)


class DescribeConfigsResponse(Response, key=32, versions=(0, 4), flexible=4):
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
    class AlterConfigsResourceResponse(Struct):
        error_code: int16 = 0
        error_message: str | None = ""
        resource_type: int8 = 0
        resource_name: str = ""

    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


class IncrementalAlterConfigsRequest(Request, key=44, versions=(0, 1), flexible=1):
    class AlterConfigsResource(Struct):
        class AlterableConfig(Struct):
            name: str = ""
            config_operation: int8 = 0
            value: str | None = ""

        resource_type: int8 = 0
        resource_name: str = ""
        configs: list[AlterableConfig] = []

    resources: list[AlterConfigsResource] = []
    validate_only: bool = False


class IncrementalAlterConfigsResponse(Response, key=44, versions=(0, 1), flexible=1):
    class AlterConfigsResourceResponse(Struct):
        error_code: int16 = 0
        error_message: str | None = ""
        resource_type: int8 = 0
        resource_name: str = ""

    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = []
