"""ApiVersions: the first question of every connection."""

from collections.abc import Iterator

from kafkalike.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

from ..case import Ask, Case, Raw, head, sized, versions_of

SOFTWARE = {
    "empty-name": ("", "1"),
    "empty-version": ("x", ""),
    "both-empty": ("", ""),
    "blank": ("a b", "1"),
    "leading-dash": ("-a", "1"),
    "trailing-dash": ("a-", "1"),
    "leading-dot": (".a", "1"),
    "inner-dots": ("a..b", "1.-.2"),
    "one-letter": ("a", "1"),
    "not-ascii": ("für", "1"),
    "underscore": ("a_b", "1"),
    "newline": ("a\n", "1"),
    "bad-version": ("a", "1 "),
    "long": ("a" * 300, "1" * 300),
    "slash": ("a/b", "1"),
}


def ask(version: int, name: str = "differential", software: str = "1.0") -> Ask:
    message = ApiVersionsRequest(client_software_name=name, client_software_version=software)
    return Ask(message, version)


def cases() -> Iterator[Case]:
    for version in versions_of(ApiVersionsRequest):
        yield Case(f"api-versions-v{version}", [ask(version)], whole_list=True)
        yield Case(f"api-versions-twice-v{version}", [ask(version), ask(version)])
    for version in (3, 4):
        for name, (software, number) in SOFTWARE.items():
            yield Case(
                f"api-versions-software-{name}-v{version}",
                [ask(version, software, number), ask(0)],
            )
    answer = [(ApiVersionsResponse, 0)]
    for version in (5, 6, 99, 32767, -1, -32768):
        # Without a body; the header is that of a flexible version, as newer clients send it.
        plain = head(18, 0, 9, "x")[4:]
        start = b"\0\x12" + version.to_bytes(2, "big", signed=True)
        yield Case(
            f"api-versions-unknown-{version}-plain-header", [Raw(sized(start + plain), answer)]
        )
        body = b"\0" + b"\x02a\x021\0"
        yield Case(
            f"api-versions-unknown-{version}-flexible", [Raw(sized(start + plain + body), answer)]
        )
    start = head(18, 3, 9, "x")
    bodies = {
        "none": b"",
        "cut": b"\x05ab",
        "null-name": b"\x00\x021\0",
        "trailing": b"\x02a\x021\0rest",
        "unknown-tag": b"\x02a\x021\x01\x63\x03abc",
        "tag-twice": b"\x02a\x021\x02\x63\x01a\x63\x01b",
        "tags-descending": b"\x02a\x021\x02\x63\x01a\x05\x01b",
        "tag-cut": b"\x02a\x021\x01\x63\x09abc",
        "tags-negative": b"\x02a\x021\xff\xff\xff\xff\x0f",
        "invalid-utf8": b"\x02\xff\x021\0",
        "long-varint": b"\x82\x80\x80\x80\x00a\x021\0",
        "too-long-varint": b"\x82\x80\x80\x80\x80\x00a\x021\0",
    }
    for name, body in bodies.items():
        yield Case(
            f"api-versions-body-{name}", [Raw(sized(start + body), [(ApiVersionsResponse, 3)])]
        )
