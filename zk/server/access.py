"""Access control: who may do what to a znode.

Schemes: `world` (anyone), `digest` (user and password), `ip` (address or network), `auth` (whoever
creates the node, replaced by its digests when stored) and `super` (everything).
"""

import base64
import hashlib
from collections.abc import Sequence
from ipaddress import ip_address, ip_network

from .model import OPEN_ACL, Acl, Code, Id, TreeError


def allowed(identities: Sequence[Id], acl: tuple[Acl, ...], perms: int) -> bool:
    """Whether any of the bits in `perms` is granted to any of the identities."""
    if acl is OPEN_ACL or not acl:
        return True
    if any(identity.scheme == "super" for identity in identities):
        return True
    for entry in acl:
        if not entry.perms & perms:
            continue
        if entry.id == ("world", "anyone"):
            return True
        for identity in identities:
            if identity.scheme != entry.id.scheme:
                continue
            if identity.scheme == "ip":
                if _ip_matches(identity.id, entry.id.id):
                    return True
            elif identity.id == entry.id.id:
                return True
    return False


def checked_acl(identities: Sequence[Id], acl: Sequence[Acl], path: str) -> tuple[Acl, ...]:
    """An access list as it is stored: without duplicates, `auth` replaced by who asks."""
    if acl is OPEN_ACL:
        return OPEN_ACL
    result: list[Acl] = []
    for entry in dict.fromkeys(acl):
        scheme, text = entry.id
        if entry.id == ("world", "anyone"):
            result.append(entry)
        elif scheme == "auth":
            own = [i for i in identities if i.scheme == "digest"]
            if not own:
                raise TreeError(Code.INVALID_ACL, path)
            result.extend(Acl(entry.perms, identity) for identity in own)
        elif (scheme == "digest" and _is_digest(text)) or (scheme == "ip" and _is_ip(text)):
            result.append(entry)
        else:
            raise TreeError(Code.INVALID_ACL, path)
    if not result:
        raise TreeError(Code.INVALID_ACL, path)
    return OPEN_ACL if tuple(result) == OPEN_ACL else tuple(result)


def identity_of(scheme: str, credentials: bytes, host: str) -> Id | None:
    """The identity that an authentication request proves; None refuses it."""
    if scheme == "ip":
        return Id("ip", host)
    if scheme == "digest":
        return Id("digest", digest_of(credentials.decode("utf-8", "replace")))
    return None


def digest_of(credentials: str) -> str:
    """`user:password` -> `user:base64(sha1(user:password))`, the id of the digest scheme."""
    user = credentials.partition(":")[0]
    digest = hashlib.sha1(credentials.encode("utf-8"), usedforsecurity=False).digest()
    return f"{user}:{base64.b64encode(digest).decode('ascii')}"


def _is_digest(text: str) -> bool:
    user, colon, rest = text.partition(":")
    return bool(colon and user and rest) and ":" not in rest


def _is_ip(text: str) -> bool:
    address, slash, bits = text.partition("/")
    try:
        width = ip_address(address).max_prefixlen
    except ValueError:
        return False
    return not slash or (bits.isdecimal() and int(bits) <= width)


def _ip_matches(address: str, pattern: str) -> bool:
    try:
        return ip_address(address) in ip_network(pattern, strict=False)
    except ValueError:
        return False
