"""SystemService: what the server is, the ladder of evidence, and conservation."""

from collections.abc import Sequence
from typing import Final

from control_plane.core.conservation.application import Conservation
from control_plane.core.conservation.domain import Balance
from control_plane.core.evidence.application import Evidence, Subject, bundle_json
from control_plane.core.evidence.domain import Disturbance, Rung
from foundation.grpc.context import ServicerContext as Context
from foundation.grpc.times import moment_of, timestamp
from foundation.principals import Scope, current_principal
from tdp.control.v1 import system_service_pb2 as pb
from tdp.control.v1 import system_service_pb2_grpc as pb_grpc

PROTOCOL_VERSION: Final = 1
FEATURES: Final = ("callbacks-grpc", "callbacks-http", "conservation", "evidence", "watch")
"""What a client may rely on everywhere; the contract says what each name means."""


class SystemServicer(pb_grpc.SystemServiceServicer):
    """Serves tdp.control.v1.SystemService."""

    def __init__(
        self,
        evidence: Evidence,
        conservation: Conservation,
        version: str,
        replica_id: str,
        more_features: Sequence[str] = (),
    ) -> None:
        self._features = sorted({*FEATURES, *more_features})
        self._evidence = evidence
        self._conservation = conservation
        self._version = version
        self._replica_id = replica_id

    async def GetServerInfo(
        self, request: pb.GetServerInfoRequest, context: Context
    ) -> pb.GetServerInfoResponse:
        current_principal().require_scope(Scope.READ)
        return pb.GetServerInfoResponse(
            version=self._version,
            protocol_version_min=PROTOCOL_VERSION,
            protocol_version_max=PROTOCOL_VERSION,
            features=self._features,
            replica_id=self._replica_id,
            database_time=timestamp(await self._evidence.database_time()),
        )

    async def GetEvidence(
        self, request: pb.GetEvidenceRequest, context: Context
    ) -> pb.GetEvidenceResponse:
        subject = Subject(request.task_id, request.execution_id, request.external_ref)
        ladder = await self._evidence.ladder(current_principal(), subject)
        return pb.GetEvidenceResponse(
            task_id=ladder.task_id,
            execution_id=ladder.execution_id,
            rungs=[_rung(one) for one in ladder.rungs],
            verdict=ladder.verdict,
            bundle_json=bundle_json(ladder),
        )

    async def GetConservation(
        self, request: pb.GetConservationRequest, context: Context
    ) -> pb.GetConservationResponse:
        balances = await self._conservation.check_for(
            current_principal(),
            moment_of(request.start_time) if request.HasField("start_time") else None,
            moment_of(request.end_time) if request.HasField("end_time") else None,
        )
        return pb.GetConservationResponse(
            lines=[_line(one) for one in balances],
            balanced=all(one.holds for one in balances),
        )


def _line(balance: Balance) -> pb.ConservationLine:
    return pb.ConservationLine(
        key=balance.invariant.key,
        name=balance.invariant.equation,
        meaning=balance.invariant.meaning,
        left_count=balance.left_count,
        right_count=balance.right_count,
        differing_ids=balance.differing_ids,
    )


def _rung(rung: Rung) -> pb.EvidenceRung:
    return pb.EvidenceRung(
        hop=rung.hop,
        title=rung.title,
        state=pb.RungState.Value(f"RUNG_STATE_{rung.state}"),
        identity=rung.identity,
        store=rung.store,
        location=rung.location,
        record=rung.record,
        durable_time=timestamp(rung.durable_at),
        actor=rung.actor,
        summary=rung.summary,
        disturbances=[_disturbance(one) for one in rung.disturbances],
    )


def _disturbance(disturbance: Disturbance) -> pb.Disturbance:
    return pb.Disturbance(
        kind=disturbance.kind,
        description=disturbance.description,
        occur_time=timestamp(disturbance.occurred_at),
    )
