"""The REST application: every route, problem and bound in one place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp

from business_gateway.adapters.inbound.rest_limits import BodyLimits
from business_gateway.adapters.inbound.rest_models import OrderChangeDocument, ProblemDocument
from business_gateway.adapters.inbound.rest_problems import install_problems
from foundation.ids import IdSource

HEALTH_PATH: Final = "/healthz"


@dataclass(frozen=True, slots=True)
class RestParts:
    """What the application is made of; bodies are bounded by path, else by the default."""

    routers: Sequence[APIRouter]
    ids: IdSource
    body_bytes_max: int
    body_bytes_max_by_path: Mapping[str, int]


def create_app(parts: RestParts) -> ASGIApp:
    """Return the application, its bodies bounded."""
    return BodyLimits(
        create_api(parts),
        default_bytes_max=parts.body_bytes_max,
        by_path=parts.body_bytes_max_by_path,
    )


def create_api(parts: RestParts) -> FastAPI:
    """Return the routes with their OpenAPI 3.1 document, without bounds on bodies."""
    api = _Api(
        title="TDP business gateway",
        version=_version(),
        summary="Upload archives, order their processing, follow it, and get the results.",
        # The framework's pages load scripts from elsewhere, onto the gateway's own origin.
        docs_url=None,
        redoc_url=None,
    )
    install_problems(api, parts.ids)
    for router in parts.routers:
        api.include_router(router)
    api.add_api_route(HEALTH_PATH, _alive, methods=["GET"], include_in_schema=False)
    return api


class _Api(FastAPI):
    """Adds what no route returns as its model: problems and the data of live events."""

    def openapi(self) -> dict[str, Any]:
        """Return the document, made once."""
        if self.openapi_schema is None:
            document = super().openapi()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            for model in (ProblemDocument, OrderChangeDocument):
                _add_schema(schemas, model.model_json_schema(ref_template=_REF), model.__name__)
            for path in document["paths"].values():
                for operation in path.values():
                    _mend_validation(operation)
            schemas.pop("HTTPValidationError", None)
            schemas.pop("ValidationError", None)
            self.openapi_schema = document
        return self.openapi_schema


_REF: Final = "#/components/schemas/{model}"


def _add_schema(schemas: dict[str, Any], schema: dict[str, Any], name: str) -> None:
    for inner_name, inner in schema.pop("$defs", {}).items():
        schemas.setdefault(inner_name, inner)
    schemas.setdefault(name, schema)


def _mend_validation(operation: dict[str, Any]) -> None:
    """Take out the library's own shape of a 422, which no route answers here."""
    content = operation.get("responses", {}).get("422", {}).get("content", {})
    content.pop("application/json", None)


async def _alive() -> JSONResponse:
    return JSONResponse({"status": "alive"})


def _version() -> str:
    try:
        return version("tdp")
    except PackageNotFoundError:
        return "0"
