"""sasl."""

from kafkalike.protocol.primitives import int8, int16, int32, int64
from kafkalike.protocol.struct import Request, Response, Struct, field


class SaslHandshakeRequest(Request, key=17, versions=(0, 1), flexible=None):
    mechanism: str = ""


class SaslHandshakeResponse(Response, key=17, versions=(0, 1), flexible=None):
    error_code: int16 = 0
    mechanisms: list[str] = []


class SaslAuthenticateRequest(Request, key=36, versions=(0, 2), flexible=2):
    auth_bytes: bytes = b""


class SaslAuthenticateResponse(Response, key=36, versions=(0, 2), flexible=2):
    error_code: int16 = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int64 = field(since=1, default=0, ignorable=True)


class DescribeUserScramCredentialsRequest(Request, key=50, versions=(0, 0), flexible=0):
    class UserName(Struct):
        name: str = ""

    users: list[UserName] | None = []


class DescribeUserScramCredentialsResponse(Response, key=50, versions=(0, 0), flexible=0):
    class DescribeUserScramCredentialsResult(Struct):
        class CredentialInfo(Struct):
            mechanism: int8 = 0
            iterations: int32 = 0

        user: str = ""
        error_code: int16 = 0
        error_message: str | None = ""
        credential_infos: list[CredentialInfo] = []

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = []


class AlterUserScramCredentialsRequest(Request, key=51, versions=(0, 0), flexible=0):
    class ScramCredentialDeletion(Struct):
        name: str = ""
        mechanism: int8 = 0

    class ScramCredentialUpsertion(Struct):
        name: str = ""
        mechanism: int8 = 0
        iterations: int32 = 0
        salt: bytes = b""
        salted_password: bytes = b""

    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


class AlterUserScramCredentialsResponse(Response, key=51, versions=(0, 0), flexible=0):
    class AlterUserScramCredentialsResult(Struct):
        user: str = ""
        error_code: int16 = 0
        error_message: str | None = ""

    throttle_time_ms: int32 = 0
    results: list[AlterUserScramCredentialsResult] = []
