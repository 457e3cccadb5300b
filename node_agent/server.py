"""Serves one agent: enrols it where needed, runs its services until asked to stop, closes it."""

import asyncio

import structlog

from foundation.lifecycle import StopRequest, Supervision, run_services
from node_agent.adapters.outbound.state_folder import StateFolder
from node_agent.bootstrap import VERSION, Agent, Surroundings, enrol
from node_agent.core.session.enrolment import SavedCredential
from node_agent.settings import AgentSettings

_log = structlog.stdlib.get_logger(__name__)


async def serve(settings: AgentSettings, stop_request: StopRequest) -> None:
    """Serve until asked to stop; raises what a service died of, and StateFolder errors."""
    surroundings = Surroundings.of_this_process()
    with StateFolder(settings.state_folder) as folder:
        credential = await _enrolled(settings, folder, surroundings, stop_request)
        if credential is None:
            return
        agent = Agent(settings, folder, credential, surroundings)
        try:
            await agent.open()
            await run_services(agent.services(), stop_request, _supervision(agent))
        finally:
            await agent.close()


async def enrol_only(settings: AgentSettings) -> SavedCredential:
    """Enrol and return the identity; does nothing but answer it where that is done."""
    with StateFolder(settings.state_folder) as folder:
        return await enrol(settings, folder, Surroundings.of_this_process())


async def _enrolled(
    settings: AgentSettings,
    folder: StateFolder,
    surroundings: Surroundings,
    stop_request: StopRequest,
) -> SavedCredential | None:
    """Enrol, for as long as it takes; None if asked to stop meanwhile."""
    async with asyncio.TaskGroup() as group:
        enrolling = group.create_task(enrol(settings, folder, surroundings), name="enrolment")
        stopping = group.create_task(stop_request.wait(), name="stop-while-enrolling")
        await asyncio.wait({enrolling, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not enrolling.done():
            enrolling.cancel()
            return None
    return enrolling.result()


def _supervision(agent: Agent) -> Supervision:
    async def first_welcome() -> None:
        await agent.session.welcomed.wait()

    def ready() -> None:
        agent.notifier.ready()
        _log.info(
            "node_agent_ready",
            version=VERSION,
            node_id=agent.credential.node_id,
            node_name=agent.credential.node_name,
            boot_id=agent.boot_id,
        )

    return Supervision(
        shutdown_grace_s=agent.settings.shutdown_grace_s,
        ready_gate=first_welcome,
        on_ready=ready,
        on_stopping=agent.notifier.stopping,
        clock=agent.clock,
    )
