"""Authentication (KIP-43, KIP-152) and the credentials behind SCRAM (KIP-554)."""

from kafkalike.protocol.primitives import int8, int16, int32, int64
from kafkalike.protocol.struct import Request, Response, Struct, field


class SaslHandshakeRequest(Request, key=17, versions=(0, 1), flexible=None):
    """Choose a mechanism.

    v0: raw tokens follow.  v1: tokens travel in SaslAuthenticate (KIP-152).
    """

    mechanism: str = ""


class SaslHandshakeResponse(Response, key=17, versions=(0, 1), flexible=None):
    """Whether the mechanism is enabled, and which are."""

    error_code: int16 = 0
    mechanisms: list[str] = []


class SaslAuthenticateRequest(Request, key=36, versions=(0, 2), flexible=2):
    """One token of the mechanism chosen before.

    v1: ready for a session lifetime (KIP-368).
    """

    auth_bytes: bytes = b""


class SaslAuthenticateResponse(Response, key=36, versions=(0, 2), flexible=2):
    """The answering token.

    v1: for how long the session lasts, 0 for ever.
    """

    error_code: int16 = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: int64 = field(since=1, default=0, ignorable=True)


class DescribeUserScramCredentialsRequest(Request, key=50, versions=(0, 0), flexible=0):
    """Ask which SCRAM mechanisms users have; null or empty asks for all users."""

    class UserName(Struct):
        name: str = ""

    users: list[UserName] | None = []


class DescribeUserScramCredentialsResponse(Response, key=50, versions=(0, 0), flexible=0):
    """Mechanisms and iterations, never the secrets."""

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
    """Set and remove SCRAM credentials.  Only the controller can."""

    class ScramCredentialDeletion(Struct):
        name: str = ""
        # 1: SCRAM-SHA-256; 2: SCRAM-SHA-512.
        mechanism: int8 = 0

    class ScramCredentialUpsertion(Struct):
        name: str = ""
        # 1: SCRAM-SHA-256; 2: SCRAM-SHA-512.
        mechanism: int8 = 0
        iterations: int32 = 0
        salt: bytes = b""
        salted_password: bytes = b""

    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


class AlterUserScramCredentialsResponse(Response, key=51, versions=(0, 0), flexible=0):
    """One result for each user."""

    class AlterUserScramCredentialsResult(Struct):
        user: str = ""
        error_code: int16 = 0
        error_message: str | None = ""

    throttle_time_ms: int32 = 0
    results: list[AlterUserScramCredentialsResult] = []
