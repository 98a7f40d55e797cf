"""Client quotas (KIP-546)."""

from kafkalike.protocol.primitives import float64, int8, int16, int32
from kafkalike.protocol.struct import Request, Response, Struct


class DescribeClientQuotasRequest(Request, key=48, versions=(0, 1), flexible=1):
    """Ask for quotas of entities that match all components."""

    class ComponentData(Struct):
        entity_type: str = ""
        # 0: exactly this name; 1: the default entity; 2: any name.
        match_type: int8 = 0
        match: str | None = ""

    components: list[ComponentData] = []
    strict: bool = False


class DescribeClientQuotasResponse(Response, key=48, versions=(0, 1), flexible=1):
    """Entities and their quotas; null entries with an error."""

    class EntryData(Struct):
        class EntityData(Struct):
            entity_type: str = ""
            entity_name: str | None = ""

        class ValueData(Struct):
            key: str = ""
            value: float64 = 0.0

        entity: list[EntityData] = []
        values: list[ValueData] = []

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    entries: list[EntryData] | None = []


class AlterClientQuotasRequest(Request, key=49, versions=(0, 1), flexible=1):
    """Set and remove quotas of entities."""

    class EntryData(Struct):
        class EntityData(Struct):
            entity_type: str = ""
            entity_name: str | None = ""

        class OpData(Struct):
            key: str = ""
            value: float64 = 0.0
            remove: bool = False

        entity: list[EntityData] = []
        ops: list[OpData] = []

    entries: list[EntryData] = []
    validate_only: bool = False


class AlterClientQuotasResponse(Response, key=49, versions=(0, 1), flexible=1):
    """One result for each entity."""

    class EntryData(Struct):
        class EntityData(Struct):
            entity_type: str = ""
            entity_name: str | None = ""

        error_code: int16 = 0
        error_message: str | None = ""
        entity: list[EntityData] = []

    throttle_time_ms: int32 = 0
    entries: list[EntryData] = []
