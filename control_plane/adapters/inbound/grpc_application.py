"""ApplicationService: translates between the contract and the use cases of applications."""

from control_plane.adapters.inbound.messages import outcome
from control_plane.adapters.inbound.pages import next_page, page_of
from control_plane.core.applications.application import Applications, EndpointChange
from control_plane.core.applications.domain import Application
from control_plane.core.paging import page_position, page_size
from foundation.grpc.context import ServicerContext as Context
from foundation.grpc.times import moment_of, timestamp
from foundation.principals import current_principal
from tdp.control.v1 import application_service_pb2 as pb
from tdp.control.v1 import application_service_pb2_grpc as pb_grpc

_SCOPES = {
    pb.API_KEY_SCOPE_ADMIN: "admin",
    pb.API_KEY_SCOPE_SUBMIT: "submit",
    pb.API_KEY_SCOPE_READ: "read",
}


class ApplicationServicer(pb_grpc.ApplicationServiceServicer):
    """Serves tdp.control.v1.ApplicationService."""

    def __init__(self, applications: Applications) -> None:
        self._applications = applications

    async def RegisterApplication(
        self, request: pb.RegisterApplicationRequest, context: Context
    ) -> pb.RegisterApplicationResponse:
        application, created = await self._applications.register(
            current_principal(),
            request.idempotency_key,
            request.name,
            EndpointChange(request.callback_url, request.callback_secret),
            EndpointChange(request.resource_provider_url, request.resource_provider_secret),
        )
        return pb.RegisterApplicationResponse(
            application=_message(application), outcome=outcome(created=created)
        )

    async def GetApplication(
        self, request: pb.GetApplicationRequest, context: Context
    ) -> pb.GetApplicationResponse:
        application = await self._applications.get(current_principal(), request.application_id)
        return pb.GetApplicationResponse(application=_message(application))

    async def ListApplications(
        self, request: pb.ListApplicationsRequest, context: Context
    ) -> pb.ListApplicationsResponse:
        size = page_size(request.page_size)
        position = page_position(request.page_token, "applications", str)
        after = "" if position is None else str(position[0])
        found = await self._applications.list(current_principal(), after, size + 1)
        page, last = page_of(found, size, _message)
        more = next_page("applications", *(one.name for one in last))
        return pb.ListApplicationsResponse(applications=page, next_page_token=more)

    async def CreateApiKey(
        self, request: pb.CreateApiKeyRequest, context: Context
    ) -> pb.CreateApiKeyResponse:
        api_key_id, created = await self._applications.create_key(
            current_principal(),
            request.idempotency_key,
            (request.application_id, request.operator_name),
            request.key_sha256,
            [_SCOPES.get(scope, "unspecified") for scope in request.scopes],
            moment_of(request.expire_time) if request.HasField("expire_time") else None,
        )
        return pb.CreateApiKeyResponse(api_key_id=api_key_id, outcome=outcome(created=created))

    async def RevokeApiKey(
        self, request: pb.RevokeApiKeyRequest, context: Context
    ) -> pb.RevokeApiKeyResponse:
        created = await self._applications.revoke_key(
            current_principal(), request.idempotency_key, request.api_key_id
        )
        return pb.RevokeApiKeyResponse(outcome=outcome(created=created))

    async def SetCallbackEndpoint(
        self, request: pb.SetCallbackEndpointRequest, context: Context
    ) -> pb.SetCallbackEndpointResponse:
        application, created = await self._applications.set_callback(
            current_principal(),
            "SetCallbackEndpoint",
            request.idempotency_key,
            request.application_id,
            EndpointChange(request.callback_url, request.callback_secret),
        )
        return pb.SetCallbackEndpointResponse(
            application=_message(application), outcome=outcome(created=created)
        )

    async def RotateCallbackSecret(
        self, request: pb.RotateCallbackSecretRequest, context: Context
    ) -> pb.RotateCallbackSecretResponse:
        _, created = await self._applications.set_callback(
            current_principal(),
            "RotateCallbackSecret",
            request.idempotency_key,
            request.application_id,
            EndpointChange(None, request.callback_secret),
        )
        return pb.RotateCallbackSecretResponse(outcome=outcome(created=created))

    async def SetResourceProvider(
        self, request: pb.SetResourceProviderRequest, context: Context
    ) -> pb.SetResourceProviderResponse:
        application, created = await self._applications.set_provider(
            current_principal(),
            "SetResourceProvider",
            request.idempotency_key,
            request.application_id,
            EndpointChange(request.resource_provider_url, request.resource_provider_secret),
        )
        return pb.SetResourceProviderResponse(
            application=_message(application), outcome=outcome(created=created)
        )

    async def RotateResourceProviderSecret(
        self, request: pb.RotateResourceProviderSecretRequest, context: Context
    ) -> pb.RotateResourceProviderSecretResponse:
        _, created = await self._applications.set_provider(
            current_principal(),
            "RotateResourceProviderSecret",
            request.idempotency_key,
            request.application_id,
            EndpointChange(None, request.resource_provider_secret),
        )
        return pb.RotateResourceProviderSecretResponse(outcome=outcome(created=created))

    async def DisableApplication(
        self, request: pb.DisableApplicationRequest, context: Context
    ) -> pb.DisableApplicationResponse:
        application, created = await self._applications.disable(
            current_principal(), request.idempotency_key, request.application_id
        )
        return pb.DisableApplicationResponse(
            application=_message(application), outcome=outcome(created=created)
        )


def _message(application: Application) -> pb.Application:
    return pb.Application(
        application_id=application.application_id,
        name=application.name,
        callback_url=application.callback_url,
        callback_disabled=application.callback_disabled,
        resource_provider_url=application.resource_provider_url,
        disabled=application.disabled,
        create_time=timestamp(application.created_at),
    )
