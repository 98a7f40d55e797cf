"""Access control lists (KIP-140, KIP-290) and delegation tokens (KIP-48)."""

from kafkalike.protocol.primitives import int8, int16, int32, int64
from kafkalike.protocol.struct import Request, Response, Struct, field


class DescribeAclsRequest(Request, key=29, versions=(0, 3), flexible=2):
    """Ask for the rules that match a filter; null matches all.

    v1: pattern type (KIP-290).  v3: user resources (KIP-373).
    """

    resource_type_filter: int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int8 = field(since=1, default=3)
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int8 = 0
    permission_type: int8 = 0


class DescribeAclsResponse(Response, key=29, versions=(0, 3), flexible=2):
    """Rules, grouped by resource."""

    class DescribeAclsResource(Struct):
        class AclDescription(Struct):
            principal: str = ""
            host: str = ""
            operation: int8 = 0
            permission_type: int8 = 0

        resource_type: int8 = 0
        resource_name: str = ""
        pattern_type: int8 = field(since=1, default=3)
        acls: list[AclDescription] = []

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = []


class CreateAclsRequest(Request, key=30, versions=(0, 3), flexible=2):
    """Add rules.

    v1: pattern type.  v3: user resources.
    """

    class AclCreation(Struct):
        resource_type: int8 = 0
        resource_name: str = ""
        resource_pattern_type: int8 = field(since=1, default=3)
        principal: str = ""
        host: str = ""
        operation: int8 = 0
        permission_type: int8 = 0

    creations: list[AclCreation] = []


class CreateAclsResponse(Response, key=30, versions=(0, 3), flexible=2):
    """One result for each rule, in the order of the request."""

    class AclCreationResult(Struct):
        error_code: int16 = 0
        error_message: str | None = ""

    throttle_time_ms: int32 = 0
    results: list[AclCreationResult] = []


class DeleteAclsRequest(Request, key=31, versions=(0, 3), flexible=2):
    """Remove all rules that match any of the filters.

    v1: pattern type.  v3: user resources.
    """

    class DeleteAclsFilter(Struct):
        resource_type_filter: int8 = 0
        resource_name_filter: str | None = ""
        pattern_type_filter: int8 = field(since=1, default=3)
        principal_filter: str | None = ""
        host_filter: str | None = ""
        operation: int8 = 0
        permission_type: int8 = 0

    filters: list[DeleteAclsFilter] = []


class DeleteAclsResponse(Response, key=31, versions=(0, 3), flexible=2):
    """For each filter what it removed."""

    class DeleteAclsFilterResult(Struct):
        class DeleteAclsMatchingAcl(Struct):
            error_code: int16 = 0
            error_message: str | None = ""
            resource_type: int8 = 0
            resource_name: str = ""
            pattern_type: int8 = field(since=1, default=3)
            principal: str = ""
            host: str = ""
            operation: int8 = 0
            permission_type: int8 = 0

        error_code: int16 = 0
        error_message: str | None = ""
        matching_acls: list[DeleteAclsMatchingAcl] = []

    throttle_time_ms: int32 = 0
    filter_results: list[DeleteAclsFilterResult] = []


class CreateDelegationTokenRequest(Request, key=38, versions=(0, 3), flexible=2):
    """Get a token that can stand for a user (KIP-48).

    v3: for another owner (KIP-373).
    """

    class CreatableRenewers(Struct):
        principal_type: str = ""
        principal_name: str = ""

    owner_principal_type: str | None = field(since=3, default="")
    owner_principal_name: str | None = field(since=3, default="")
    renewers: list[CreatableRenewers] = []
    max_lifetime_ms: int64 = 0


class CreateDelegationTokenResponse(Response, key=38, versions=(0, 3), flexible=2):
    """The token.

    v3: who asked for it.
    """

    error_code: int16 = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: str = field(since=3, default="")
    token_requester_principal_name: str = field(since=3, default="")
    issue_timestamp_ms: int64 = 0
    expiry_timestamp_ms: int64 = 0
    max_timestamp_ms: int64 = 0
    token_id: str = ""
    hmac: bytes = b""
    throttle_time_ms: int32 = 0


class RenewDelegationTokenRequest(Request, key=39, versions=(0, 2), flexible=2):
    """Make a token last longer."""

    hmac: bytes = b""
    renew_period_ms: int64 = 0


class RenewDelegationTokenResponse(Response, key=39, versions=(0, 2), flexible=2):
    """The new expiry time."""

    error_code: int16 = 0
    expiry_timestamp_ms: int64 = 0
    throttle_time_ms: int32 = 0


class ExpireDelegationTokenRequest(Request, key=40, versions=(0, 2), flexible=2):
    """Shorten the life of a token; a negative period ends it now."""

    hmac: bytes = b""
    expiry_time_period_ms: int64 = 0


class ExpireDelegationTokenResponse(Response, key=40, versions=(0, 2), flexible=2):
    """The new expiry time."""

    error_code: int16 = 0
    expiry_timestamp_ms: int64 = 0
    throttle_time_ms: int32 = 0


class DescribeDelegationTokenRequest(Request, key=41, versions=(0, 3), flexible=2):
    """Ask for tokens of given owners; null asks for all that may be seen."""

    class DescribeDelegationTokenOwner(Struct):
        principal_type: str = ""
        principal_name: str = ""

    owners: list[DescribeDelegationTokenOwner] | None = []


class DescribeDelegationTokenResponse(Response, key=41, versions=(0, 3), flexible=2):
    """Tokens with their times and renewers.

    v3: who asked for them.
    """

    class DescribedDelegationToken(Struct):
        class DescribedDelegationTokenRenewer(Struct):
            principal_type: str = ""
            principal_name: str = ""

        principal_type: str = ""
        principal_name: str = ""
        token_requester_principal_type: str = field(since=3, default="")
        token_requester_principal_name: str = field(since=3, default="")
        issue_timestamp: int64 = 0
        expiry_timestamp: int64 = 0
        max_timestamp: int64 = 0
        token_id: str = ""
        hmac: bytes = b""
        renewers: list[DescribedDelegationTokenRenewer] = []

    error_code: int16 = 0
    tokens: list[DescribedDelegationToken] = []
    throttle_time_ms: int32 = 0
