"""`kafkalike-admin configs describe|alter`, with the flags of Kafka's own tool.

Topics, brokers, the defaults that brokers share, and loggers of brokers.  `configs --describe` and
`configs --alter` are understood too.
"""

import argparse
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from kafkalike.errors import NONE
from kafkalike.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from kafkalike.properties import PropertiesError, parse_properties

from .. import cli
from .client import AdminClient, add_connection_flags, describe_error, run_with_client

TYPES: Final = {"topics": 2, "brokers": 4, "broker-loggers": 8}
"""Entity type -> its code on the wire."""
SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "server.properties",
    5: "default",
    6: "logger",
}
"""Where a value comes from, by its code on the wire."""
DYNAMIC: Final = (1, 2, 3, 6)
SET: Final = 0
DELETE: Final = 1
DEFAULTS: Final = ""
"""The name of what all brokers share."""

_PAIR: Final = re.compile(r"\s*([^=,\s]+)\s*=\s*(\[[^\]]*\]|[^,]*?)\s*(?:,|$)")


@dataclass(slots=True, frozen=True)
class Entity:
    """What is configured."""

    type: str
    name: str

    def __str__(self) -> str:
        word = self.type.removesuffix("s")
        return f"{word} {self.name}" if self.name != DEFAULTS else "all brokers"


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("configs", help="show and change settings", description=__doc__)
    parser.add_argument(
        "verb", nargs="?", choices=("describe", "alter"), help="show settings, or change them"
    )
    parser.add_argument("--describe", action="store_true", help="as the word describe")
    parser.add_argument("--alter", action="store_true", help="as the word alter")
    add_connection_flags(parser)
    cli.add_output_flag(parser)
    parser.add_argument("--entity-type", choices=tuple(TYPES), help="what is configured")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--entity-name", metavar="NAME", help="a topic's name or a broker's id")
    which.add_argument(
        "--entity-default", action="store_true", help="what all brokers share (with brokers)"
    )
    which.add_argument("--topic", help="short for --entity-type topics --entity-name")
    which.add_argument("--broker", metavar="ID", help="likewise for a broker")
    which.add_argument("--broker-defaults", action="store_true", help="what all brokers share")
    which.add_argument("--broker-logger", metavar="ID", help="likewise for a broker's loggers")
    parser.add_argument(
        "--all", action="store_true", help="describe: also what nobody has set; default: set only"
    )
    parser.add_argument(
        "--add-config",
        metavar="KEY=VALUE[,KEY=[A,B]]",
        help="alter: settings to set; values with commas in brackets",
    )
    parser.add_argument(
        "--add-config-file", metavar="FILE", help="alter: settings to set, as a properties file"
    )
    parser.add_argument("--delete-config", metavar="KEY[,KEY]", help="alter: settings to take back")


def run(args: argparse.Namespace) -> int:
    entity = parse_entity(args)
    if _verb(args) == "describe":
        if args.add_config or args.add_config_file or args.delete_config:
            raise cli.UsageError("--add-config, --add-config-file and --delete-config: with alter")
        return run_with_client(args, lambda client: describe(client, args, *entity))
    if args.all:
        raise cli.UsageError("--all: with describe")
    added, deleted = parse_changes(args)
    entity_type, name = entity
    if name is None:
        raise cli.UsageError("alter: expected --entity-name or --entity-default")
    chosen = Entity(entity_type, name)
    return run_with_client(args, lambda client: alter(client, args, chosen, added, deleted))


def _verb(args: argparse.Namespace) -> str:
    words = {args.verb, "describe" if args.describe else None, "alter" if args.alter else None}
    words.discard(None)
    if len(words) != 1:
        raise cli.UsageError("expected either describe or alter")
    return str(words.pop())


def parse_entity(args: argparse.Namespace) -> tuple[str, str | None]:
    """(type, name): the name is None for every one of that type.  Raises UsageError."""
    kind, name = _named(args)
    if kind == "broker-loggers" and name is None:
        raise cli.UsageError("broker-loggers: expected the id of a broker")
    if kind != "topics" and name and not re.fullmatch(r"[0-9]{1,10}", name):
        raise cli.UsageError(f"{kind}: expected the id of a broker, found {name!r}")
    return kind, name


def _named(args: argparse.Namespace) -> tuple[str, str | None]:
    short = {
        "topics": args.topic,
        "brokers": DEFAULTS if args.broker_defaults else args.broker,
        "broker-loggers": args.broker_logger,
    }
    found = [(kind, name) for kind, name in short.items() if name is not None]
    if found and args.entity_type is not None:
        raise cli.UsageError("--entity-type: not with --topic, --broker and their like")
    if found:
        return found[0]
    if args.entity_type is None:
        raise cli.UsageError(f"expected --entity-type ({', '.join(TYPES)}) or --topic or --broker")
    if args.entity_default:
        if args.entity_type != "brokers":
            raise cli.UsageError("--entity-default: only brokers have settings in common")
        return args.entity_type, DEFAULTS
    return args.entity_type, args.entity_name


def parse_changes(args: argparse.Namespace) -> tuple[dict[str, str], list[str]]:
    """What is set and what is taken back.  Raises UsageError, CommandError."""
    added: dict[str, str] = {}
    if args.add_config_file is not None:
        if args.add_config is not None:
            raise cli.UsageError("--add-config-file stands in place of --add-config")
        try:
            text = cli.read_text("--add-config-file", args.add_config_file, "iso-8859-1")
            added = parse_properties(text)
        except PropertiesError as error:
            raise cli.CommandError(f"--add-config-file: {args.add_config_file}: {error}") from error
    elif args.add_config is not None:
        added = parse_settings(args.add_config)
    deleted = [key.strip() for key in (args.delete_config or "").split(",") if key.strip()]
    if not added and not deleted:
        raise cli.UsageError("alter: expected --add-config, --add-config-file or --delete-config")
    both = [key for key in deleted if key in added]
    if both:
        raise cli.UsageError(f"{both[0]}: either set or taken back")
    return added, deleted


def parse_settings(text: str) -> dict[str, str]:
    """`key=value,key=[a,b]`, values with commas in brackets.  Raises UsageError."""
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        pair = _PAIR.match(text, position)
        if pair is None:
            raise cli.UsageError(
                f"--add-config: expected KEY=VALUE[,KEY=[A,B]], found {text[position:]!r}"
            )
        value = pair[2]
        found[pair[1]] = value[1:-1] if value.startswith("[") else value
        position = pair.end()
    if not found:
        raise cli.UsageError("--add-config: expected KEY=VALUE[,KEY=[A,B]], found nothing")
    return found


# -- describe --------------------------------------------------------------------------------------


async def describe(
    client: AdminClient, args: argparse.Namespace, entity_type: str, name: str | None
) -> int:
    metadata = await client.metadata()
    if name is not None:
        entities = [Entity(entity_type, name)]
    elif entity_type == "topics":
        entities = [Entity(entity_type, n) for n in sorted(str(t.name) for t in metadata.topics)]
    else:
        ids = sorted(client.broker_ids)
        entities = [*(Entity(entity_type, str(i)) for i in ids), Entity(entity_type, DEFAULTS)]
    described = [(entity, await _settings(client, entity, args.all)) for entity in entities]
    if args.output == "json":
        cli.print_json(
            {
                "entities": [
                    {"type": entity.type, "name": entity.name or None, "configs": settings}
                    for entity, settings in described
                ]
            }
        )
        return cli.DONE
    rows = [
        (
            str(entity),
            one["name"],
            "(secret)" if one["is_sensitive"] else _shown(one["value"]),
            one["source"],
            "no" if one["is_read_only"] else "yes",
        )
        for entity, settings in described
        for one in settings
    ]
    if rows:
        cli.print_table(("OF", "SETTING", "VALUE", "FROM", "CAN BE CHANGED"), rows)
    else:
        cli.print_note(f"nothing is set for {', '.join(map(str, entities)) or entity_type}")
    return cli.DONE


def _shown(value: str | None) -> str:
    return "-" if value is None else value if value else '""'


async def _settings(client: AdminClient, entity: Entity, everything: bool) -> list[dict[str, Any]]:
    """The settings of one entity by name; only what somebody set unless `everything`."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    request = DescribeConfigsRequest(
        resources=[
            resource(
                resource_type=TYPES[entity.type], resource_name=entity.name, configuration_keys=None
            )
        ],
        include_synonyms=True,
    )
    (result,) = (await _ask(client, entity, request)).results
    if result.error_code != NONE:
        raise cli.CommandError(
            f"{entity}: {describe_error(result.error_code, result.error_message)}"
        )
    own = _own_sources(entity)
    return [
        {
            "name": config.name,
            "value": config.value,
            "source": SOURCES.get(config.config_source, str(config.config_source)),
            "is_sensitive": config.is_sensitive,
            "is_read_only": config.read_only,
            "synonyms": [
                {"name": s.name, "value": s.value, "source": SOURCES.get(s.source, str(s.source))}
                for s in config.synonyms
            ],
        }
        for config in sorted(result.configs, key=lambda config: str(config.name))
        if everything or config.config_source in own
    ]


def _own_sources(entity: Entity) -> tuple[int, ...]:
    """What counts as set for this entity itself."""
    if entity.type == "topics":
        return (1,)
    return DYNAMIC


async def _ask(client: AdminClient, entity: Entity, request: Any) -> Any:
    """Settings of a broker are that broker's business; others anybody's."""
    if entity.type == "topics" or entity.name == DEFAULTS:
        return await client.any_broker(request)
    return await client.broker(int(entity.name), request)


# -- alter -----------------------------------------------------------------------------------------


async def alter(
    client: AdminClient,
    args: argparse.Namespace,
    entity: Entity,
    added: dict[str, str],
    deleted: Iterable[str],
) -> int:
    known = {one["name"] for one in await _settings(client, entity, everything=False)}
    missing = [key for key in deleted if key not in known]
    if missing:
        raise cli.CommandError(f"{entity}: nothing to take back: {', '.join(missing)} is not set")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    changes = [(key, SET, value) for key, value in added.items()]
    request = IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=TYPES[entity.type],
                resource_name=entity.name,
                configs=[
                    resource.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in [*changes, *((k, DELETE, None) for k in deleted)]
                ],
            )
        ]
    )
    (result,) = (await _ask(client, entity, request)).responses
    error = None
    if result.error_code != NONE:
        error = describe_error(result.error_code, result.error_message)
    if args.output == "json":
        cli.print_json(
            {
                "type": entity.type,
                "name": entity.name or None,
                "set": added,
                "deleted": list(deleted),
                "error": error,
            }
        )
    elif error is None:
        print(f"{entity}: changed")
    if error is not None:
        cli.print_error(f"{entity}: {error}")
    return cli.DONE if error is None else cli.FAILED
