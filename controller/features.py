"""The `/feature` node (KIP-584; reference: zookeeper 2.5): kept by the controller, read by all.

A cluster with ZooKeeper has no features to finalize: brokers of release 3.9 stop when they find
one.  The node must exist nevertheless, in version 2 and enabled.
"""

from collections.abc import Mapping

from kafkalike.errors import FeatureUpdateFailed, InvalidRequest, KafkaError
from kafkalike.messages.cluster import UpdateFeaturesRequest, UpdateFeaturesResponse
from kafkalike.zk import paths
from kafkalike.zk.client import (
    BadVersion,
    Create,
    NodeExists,
    NoNode,
    SetData,
    Stat,
    ZkError,
    retrying,
)
from kafkalike.zk.election import guarded
from kafkalike.zk.znodes import BrokerInfo, CorruptZnode, FeatureInfo, FinalizedFeature

from .partitions import MAX_WRITE_ROUNDS
from .term import Term

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3

Finalized = Mapping[str, FinalizedFeature]


def upgraded(found: FeatureInfo | None) -> FeatureInfo:
    """The node as a controller of release 3.9 leaves it."""
    if found is None or not found.enabled:
        return FeatureInfo()
    return FeatureInfo(
        features={n: FinalizedFeature(f.max_version_level) for n, f in found.features.items()}
    )


def supports(info: BrokerInfo, finalized: Finalized) -> bool:
    """Whether a broker can run with the finalized levels."""
    return all(
        name in info.features
        and info.features[name].min_version
        <= feature.max_version_level
        <= info.features[name].max_version
        for name, feature in finalized.items()
    )


def judge_update(
    finalized: Finalized,
    update: UpdateFeaturesRequest.FeatureUpdateKey,
    version: int,
) -> KafkaError | None:
    """Why an update is refused; None only for the removal of a feature that is finalized."""
    upgrade_type = update.upgrade_type
    if version == 0:
        upgrade_type = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    if not update.feature:
        return InvalidRequest("A feature without a name cannot be updated.")
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return InvalidRequest(f"Upgrade type {upgrade_type} is not known, expected 1, 2 or 3.")
    if update.max_version_level >= 1:
        return InvalidRequest(f"Feature '{update.feature}' is not supported by this cluster.")
    if upgrade_type == UPGRADE:
        return InvalidRequest(
            f"Level {update.max_version_level} removes feature '{update.feature}': "
            "that must be asked for as a downgrade."
        )
    if update.feature not in finalized:
        return InvalidRequest(f"Feature '{update.feature}' is not finalized.")
    return None


class FeatureKeeper:
    """Reads and writes `/feature`."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self.finalized: Finalized = {}

    async def set_up(self) -> int:
        """At failover: make the node what it must be; its data version."""
        for _ in range(MAX_WRITE_ROUNDS):
            found, version = await self._read()
            wanted = upgraded(found)
            self.finalized = wanted.features
            if found == wanted:
                assert version is not None
                return version
            try:
                return await self._write(wanted, version)
            except (BadVersion, NodeExists, NoNode):
                continue
        raise FeatureUpdateFailed(f"{paths.FEATURE} kept changing")

    async def update(self, request: UpdateFeaturesRequest, version: int) -> UpdateFeaturesResponse:
        """UpdateFeatures; raises FeatureUpdateFailed when ZooKeeper refuses the change."""
        found, znode_version = await self._read()
        finalized = dict(upgraded(found).features)
        Result = UpdateFeaturesResponse.UpdatableFeatureResult
        results = []
        for update in request.feature_updates:
            error = judge_update(finalized, update, version)
            if error is None:
                del finalized[update.feature]
            results.append(
                Result(
                    feature=update.feature,
                    error_code=error.code if error else 0,
                    error_message=error.message if error else None,
                )
            )
        wanted = FeatureInfo(features=finalized)
        if wanted != upgraded(found) and not request.validate_only:
            try:
                await self._write(wanted, znode_version)
            except ZkError as error:
                raise FeatureUpdateFailed(f"{paths.FEATURE} was not written: {error}") from error
            self.finalized = finalized
        return UpdateFeaturesResponse(error_message=None, results=results)

    async def _read(self) -> tuple[FeatureInfo | None, int | None]:
        """Content and data version; content that cannot be read counts as none."""
        try:
            data, stat = await retrying(self._term.zk, lambda: self._term.zk.get(paths.FEATURE))
        except NoNode:
            return None, None
        try:
            return FeatureInfo.decode(data, paths.FEATURE), stat.version
        except CorruptZnode as error:
            self._term.logger.error("finalized features cannot be read and are replaced: %s", error)
            return None, stat.version

    async def _write(self, info: FeatureInfo, version: int | None) -> int:
        data = info.encode()
        if version is None:
            await guarded(self._term.zk, self._term.fence, Create(paths.FEATURE, data))
            return 0
        result = await guarded(
            self._term.zk, self._term.fence, SetData(paths.FEATURE, data, version)
        )
        assert isinstance(result, Stat)
        return result.version
