"""ScheduleService: translates between the contract and the use cases of schedules."""

from datetime import datetime, timedelta
from typing import Final

from control_plane.adapters.inbound import schedule_messages as messages
from control_plane.adapters.inbound.messages import outcome
from control_plane.core.paging import page_position, page_size, page_token
from control_plane.core.schedules.application import Schedules
from control_plane.core.schedules.ports import RunView, SchedulePage
from foundation.grpc.context import ServicerContext as Context
from foundation.grpc.times import moment_of, timestamp
from foundation.principals import current_principal
from tdp.control.v1 import schedule_service_pb2 as pb
from tdp.control.v1 import schedule_service_pb2_grpc as pb_grpc

_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


class ScheduleServicer(pb_grpc.ScheduleServiceServicer):
    """Serves tdp.control.v1.ScheduleService."""

    def __init__(self, schedules: Schedules) -> None:
        self._schedules = schedules

    async def CreateSchedule(
        self, request: pb.CreateScheduleRequest, context: Context
    ) -> pb.CreateScheduleResponse:
        schedule, created = await self._schedules.create(
            current_principal(),
            request.idempotency_key,
            request.application_id,
            request.name,
            messages.spec_as_sent(request.spec),
            paused=request.paused,
        )
        return pb.CreateScheduleResponse(
            schedule=messages.schedule(schedule), outcome=outcome(created=created)
        )

    async def GetSchedule(
        self, request: pb.GetScheduleRequest, context: Context
    ) -> pb.GetScheduleResponse:
        schedule = await self._schedules.get(current_principal(), request.schedule_id)
        return pb.GetScheduleResponse(schedule=messages.schedule(schedule))

    async def ListSchedules(
        self, request: pb.ListSchedulesRequest, context: Context
    ) -> pb.ListSchedulesResponse:
        size = page_size(request.page_size)
        scope = f"schedules:{request.application_id}:{request.name}"
        position = page_position(request.page_token, scope, str)
        before = None if position is None else str(position[0])
        wanted = SchedulePage(None, request.name, before, size + 1)
        found = await self._schedules.list(current_principal(), request.application_id, wanted)
        page = found[:size]
        more = page_token(scope, page[-1].schedule_id) if len(found) > size else ""
        return pb.ListSchedulesResponse(
            schedules=[messages.schedule(one) for one in page], next_page_token=more
        )

    async def UpdateSchedule(
        self, request: pb.UpdateScheduleRequest, context: Context
    ) -> pb.UpdateScheduleResponse:
        schedule, created = await self._schedules.update(
            current_principal(),
            request.idempotency_key,
            request.schedule_id,
            messages.spec_as_sent(request.spec),
            request.expected_version,
        )
        return pb.UpdateScheduleResponse(
            schedule=messages.schedule(schedule), outcome=outcome(created=created)
        )

    async def PauseSchedule(
        self, request: pb.PauseScheduleRequest, context: Context
    ) -> pb.PauseScheduleResponse:
        schedule, created = await self._schedules.pause(
            current_principal(), request.idempotency_key, request.schedule_id, request.reason
        )
        return pb.PauseScheduleResponse(
            schedule=messages.schedule(schedule), outcome=outcome(created=created)
        )

    async def ResumeSchedule(
        self, request: pb.ResumeScheduleRequest, context: Context
    ) -> pb.ResumeScheduleResponse:
        schedule, created = await self._schedules.resume(
            current_principal(), request.idempotency_key, request.schedule_id
        )
        return pb.ResumeScheduleResponse(
            schedule=messages.schedule(schedule), outcome=outcome(created=created)
        )

    async def DeleteSchedule(
        self, request: pb.DeleteScheduleRequest, context: Context
    ) -> pb.DeleteScheduleResponse:
        created = await self._schedules.delete(
            current_principal(), request.idempotency_key, request.schedule_id
        )
        return pb.DeleteScheduleResponse(outcome=outcome(created=created))

    async def TriggerSchedule(
        self, request: pb.TriggerScheduleRequest, context: Context
    ) -> pb.TriggerScheduleResponse:
        run, run_id, created = await self._schedules.trigger(
            current_principal(), request.idempotency_key, request.schedule_id
        )
        shown = pb.ScheduleRun(run_id=run_id) if run is None else messages.run(run)
        return pb.TriggerScheduleResponse(run=shown, outcome=outcome(created=created))

    async def ListScheduleRuns(
        self, request: pb.ListScheduleRunsRequest, context: Context
    ) -> pb.ListScheduleRunsResponse:
        size = page_size(request.page_size)
        scope = f"schedule-runs:{request.schedule_id}"
        position = page_position(request.page_token, scope, int, str)
        before = None
        if position is not None:
            before = _EPOCH + int(position[0]) * _MICROSECOND, str(position[1])
        found = await self._schedules.runs(
            current_principal(), request.schedule_id, before, size + 1
        )
        page = found[:size]
        more = page_token(scope, *_place(page[-1])) if len(found) > size else ""
        return pb.ListScheduleRunsResponse(
            runs=[messages.run(one) for one in page], next_page_token=more
        )

    async def ListUpcomingTimes(
        self, request: pb.ListUpcomingTimesRequest, context: Context
    ) -> pb.ListUpcomingTimesResponse:
        calendar, times = await self._schedules.upcoming(
            current_principal(),
            request.schedule_id,
            (request.cron, request.time_zone),
            request.count,
            moment_of(request.after_time) if request.HasField("after_time") else None,
        )
        return pb.ListUpcomingTimesResponse(
            times=[
                pb.UpcomingTime(due_time=timestamp(one), local_time=calendar.local_text(one))
                for one in times
            ]
        )


def _place(run: RunView) -> tuple[int, str]:
    return (run.due_at - _EPOCH) // _MICROSECOND, run.run_id
