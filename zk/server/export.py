"""Persistent znodes as JSON values, for moving a cluster's metadata between services.

    {"format": 1, "nodes": [{"path": "/a", "data": "<base64>" or null, "acl": [[31, "world", "anyone"]],
                             "version": 3, "creates": 2, "aversion": 0}, ...]}

Parents come first.  Ephemeral nodes and `/zookeeper` are left out.  `version`, `creates` (the parent's
sequence counter) and `aversion` are kept by an import here; an import into a real ensemble cannot
set them and starts at 0.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from .model import (
    OPEN_ACL,
    ROOT,
    Acl,
    Id,
    NodeImage,
    TreeError,
    TreeImage,
    parent_of,
    validate_path,
)
from .tree import CoordinationTree

FORMAT: Final = 1


def export_tree(tree: CoordinationTree) -> dict[str, Any]:
    """Every persistent node outside `/zookeeper`."""
    nodes = []
    for path in sorted(tree.nodes, key=lambda p: p.split("/")):
        node = tree.nodes[path]
        if node.owner or path == "/zookeeper" or path.startswith("/zookeeper/"):
            continue
        nodes.append(
            {
                "path": path,
                "data": None if node.data is None else base64.b64encode(node.data).decode(),
                "acl": [[a.perms, a.id.scheme, a.id.id] for a in node.acl],
                "version": node.version,
                "creates": node.creates,
                "aversion": node.aversion,
            }
        )
    return {"format": FORMAT, "nodes": nodes}


def import_tree(dump: Mapping[str, Any], tree: CoordinationTree) -> tuple[TreeImage, int]:
    """`tree`'s state with the exported nodes added under one zxid, and how many those are.

    ValueError when `tree` has nodes of its own, or the dump is malformed.
    """
    own = [p for p in tree.nodes if p != ROOT and p.split("/")[1] != "zookeeper"]
    if own:
        raise ValueError(f"the service is not empty: it holds {len(own)} znodes, e.g. {own[0]}")
    if dump.get("format") != FORMAT:
        raise ValueError(f"format: {dump.get('format')!r}, expected {FORMAT}")
    before = tree.image()
    zxid = before.zxid + 1
    images = {image.path: image for image in before.nodes}
    for position, entry in enumerate(dump.get("nodes", ())):
        try:
            image = _node(entry, zxid)
        except (KeyError, TypeError, ValueError, TreeError) as error:
            raise ValueError(f"nodes[{position}]: {error!r}") from None
        if image.path != ROOT and parent_of(image.path) not in images:
            raise ValueError(f"nodes[{position}]: {image.path} comes before its parent")
        images[image.path] = image
    count = len(images) - len(before.nodes)
    return (
        TreeImage(zxid, before.next_session_id, before.sessions, tuple(images.values())),
        count,
    )


def _node(entry: Mapping[str, Any], zxid: int) -> NodeImage:
    path = entry["path"]
    validate_path(path)
    text = entry["data"]
    try:
        data = None if text is None else base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{path}: data is not base64: {error}") from None
    acl = tuple(Acl(int(perms), Id(str(scheme), str(id_))) for perms, scheme, id_ in entry["acl"])
    version, creates, aversion = (int(entry.get(k, 0)) for k in ("version", "creates", "aversion"))
    return NodeImage(
        path,
        data,
        OPEN_ACL if acl == OPEN_ACL else acl,
        zxid,
        zxid,
        zxid,
        0,
        0,
        version,
        creates,
        aversion,
        0,
    )
