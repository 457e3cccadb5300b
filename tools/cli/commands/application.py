"""`tdp application`: the business systems, their keys, endpoints and secrets."""

import secrets
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from foundation.errors import InvalidArgumentError, NotFoundError
from foundation.ids import is_id
from foundation.secrets import TokenKind, hash_token, new_token
from foundation.signatures import SigningSecret
from tdp.control.v1 import application_service_pb2 as applications
from tdp.control.v1 import application_service_pb2_grpc
from tools.cli.connection import Connection, ControlPlane
from tools.cli.options import PAGE_SIZE_MAX, Json, Key, Limit, group, key_of, rows_of, run
from tools.cli.output import as_document, moment, plain, show, table

app = group("Register business systems, and keep their keys, endpoints and secrets.")
Stub = application_service_pb2_grpc.ApplicationServiceStub
Name = Annotated[str, typer.Argument(metavar="APPLICATION", help="Its name or id.")]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        "--secret-file", help="Holds the secret, whsec_… or plain text; made anew if left out."
    ),
]
_PROVIDER_SECRET_BYTES: Final = 32


class Scope(StrEnum):
    """What a key may do."""

    ADMIN = "admin"
    SUBMIT = "submit"
    READ = "read"


class Side(StrEnum):
    """Whose secret is meant."""

    CALLBACK = "callback"
    PROVIDER = "provider"


@app.command("list")
def list_applications(*, limit: Limit = 50, as_json: Json = False) -> None:
    """List the applications, by name.

    Example:
      tdp application list
    """
    run(_list(limit, as_json=as_json))


@app.command()
def register(
    name: Annotated[str, typer.Argument(help="A name that no other application has.")],
    *,
    callback_url: Annotated[str, typer.Option(help="Where its callbacks go.")] = "",
    provider_url: Annotated[str, typer.Option(help="Who gives access to its files.")] = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Register an application. Secrets that it needs are made here, shown now and never again.

    Example:
      tdp application register shop --callback-url https://shop.example/callbacks
    """
    callback = SigningSecret.generate() if callback_url else None
    provider = _new_provider_secret() if provider_url else ""
    request = applications.RegisterApplicationRequest(
        idempotency_key=key_of(key),
        name=name,
        callback_url=callback_url,
        callback_secret=callback.raw if callback else b"",
        resource_provider_url=provider_url,
        resource_provider_secret=provider.encode(),
    )
    shown = {
        **({"callback_secret": callback.text} if callback else {}),
        **({"provider_secret": provider} if provider else {}),
    }
    run(_ask("RegisterApplication", request, shown, as_json=as_json))


@app.command("create-key")
def create_key(
    name: Annotated[
        str, typer.Argument(metavar="[APPLICATION]", help="Its name or id; none for an operator.")
    ] = "",
    *,
    operator: Annotated[str, typer.Option(help="Make the key of this operator instead.")] = "",
    scope: Annotated[list[Scope] | None, typer.Option(help="Repeatable; submit and read.")] = None,
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Make an API key. It is shown now and never again; only its hash is sent and kept.

    Examples:
      tdp application create-key shop
      tdp application create-key --operator ann --scope admin
    """
    run(_create_key(name, operator, scope or [Scope.SUBMIT, Scope.READ], key, as_json=as_json))


@app.command("revoke-key")
def revoke_key(
    key_id: Annotated[str, typer.Argument(help="The id that create-key showed.")],
    *,
    key: Key = "",
    as_json: Json = False,
) -> None:
    """End an API key; replicas that saw it lately may take it for some seconds more.

    Example:
      tdp application revoke-key 0190a5c2-7f4e-7cc3-98c4-dc0c0c07398f
    """
    request = applications.RevokeApiKeyRequest(idempotency_key=key_of(key), api_key_id=key_id)
    run(_ask("RevokeApiKey", request, {}, as_json=as_json))


@app.command()
def endpoint(
    name: Name,
    callback_url: Annotated[str, typer.Argument(help="Where callbacks go; '' for nowhere.")],
    *,
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Set where callbacks go, with the present secret; this also enables one that answered 410.

    Example:
      tdp application endpoint shop https://shop.example/callbacks
    """
    request = applications.SetCallbackEndpointRequest(
        idempotency_key=key_of(key), callback_url=callback_url
    )
    run(_change(name, "SetCallbackEndpoint", request, {}, as_json=as_json))


@app.command()
def rotate(
    name: Name,
    side: Annotated[Side, typer.Argument(help="Whose secret.")] = Side.CALLBACK,
    *,
    secret_file: SecretFile = None,
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Replace a secret. Let the receiver accept the new one, beside the old, before.

    Examples:
      tdp application rotate shop callback --secret-file new-secret.txt
      tdp application rotate shop provider
    """
    method, request, shown = _rotation(side, secret_file)
    request.idempotency_key = key_of(key)
    run(_change(name, method, request, shown, as_json=as_json))


@app.command()
def disable(
    name: Name,
    *,
    reason: Annotated[str, typer.Option(help="Why; kept with the request.")] = "",
    key: Key = "",
    as_json: Json = False,
) -> None:
    """Take no new tasks from an application; what runs goes on.

    Example:
      tdp application disable shop --reason "moved to another platform"
    """
    request = applications.DisableApplicationRequest(idempotency_key=key_of(key), reason=reason)
    run(_change(name, "DisableApplication", request, {}, as_json=as_json))


def _rotation(side: Side, secret_file: Path | None) -> tuple[str, Any, dict[str, str]]:
    """Return the method, its request, and what has to be shown of a secret that is made here."""
    text = secret_file.read_text("utf-8").strip() if secret_file is not None else ""
    if side is Side.PROVIDER:
        made = text or _new_provider_secret()
        rotated = applications.RotateResourceProviderSecretRequest(
            resource_provider_secret=made.encode()
        )
        return "RotateResourceProviderSecret", rotated, {} if text else {"provider_secret": made}
    secret = SigningSecret.generate() if not text else _signing_secret(text)
    request = applications.RotateCallbackSecretRequest(callback_secret=secret.raw)
    return "RotateCallbackSecret", request, {} if text else {"callback_secret": secret.text}


def _signing_secret(text: str) -> SigningSecret:
    return SigningSecret.parse(text) if text.startswith("whsec_") else SigningSecret(text.encode())


def _new_provider_secret() -> str:
    return secrets.token_urlsafe(_PROVIDER_SECRET_BYTES)


async def _create_key(
    name: str, operator: str, scopes: Sequence[Scope], key: str, *, as_json: bool
) -> None:
    if bool(name) == bool(operator):
        raise InvalidArgumentError.of_field(
            "APPLICATION", "name either an application or an --operator, and not both"
        )
    token = new_token(TokenKind.API_KEY)
    request = applications.CreateApiKeyRequest(
        idempotency_key=key_of(key),
        operator_name=operator,
        key_sha256=hash_token(token),
        scopes=[applications.ApiKeyScope.Value(f"API_KEY_SCOPE_{one.name}") for one in scopes],
    )
    shown = {"api_key": token}
    if operator:
        await _ask("CreateApiKey", request, shown, as_json=as_json)
    else:
        await _change(name, "CreateApiKey", request, shown, as_json=as_json)


async def _change(
    name: str,
    method: str,
    request: Any,  # noqa: ANN401 - one of several requests with an application_id
    shown: dict[str, str],
    *,
    as_json: bool,
) -> None:
    async with Connection.find().control() as control:
        request.application_id = await _id_of(control, name)
        answer: Any = await control.ask(getattr(Stub(control.channel), method), request)
    _show(answer, shown, as_json=as_json)


async def _ask(method: str, request: Any, shown: dict[str, str], *, as_json: bool) -> None:  # noqa: ANN401 - one of several requests
    async with Connection.find().control() as control:
        answer: Any = await control.ask(getattr(Stub(control.channel), method), request)
    _show(answer, shown, as_json=as_json)


async def _id_of(control: ControlPlane, name: str) -> str:
    if is_id(name):
        return name
    token = ""
    while True:
        answer = await control.ask(
            Stub(control.channel).ListApplications,
            applications.ListApplicationsRequest(page_size=PAGE_SIZE_MAX, page_token=token),
        )
        for one in answer.applications:
            if one.name == name:
                return one.application_id
        token = answer.next_page_token
        if not token:
            raise NotFoundError(f"there is no application {name!r}: see `tdp application list`")


async def _list(limit: int, *, as_json: bool) -> None:
    async with Connection.find().control() as control:

        async def page(size: int, token: str) -> tuple[Sequence[applications.Application], str]:
            request = applications.ListApplicationsRequest(page_size=size, page_token=token)
            answer = await control.ask(Stub(control.channel).ListApplications, request)
            return answer.applications, answer.next_page_token

        found, token = await rows_of(page, limit)
    document = {"applications": [as_document(one) for one in found], "next_page_token": token}
    show(document, as_json=as_json, render=lambda console: _render(console, found))


def _show(answer: Any, shown: dict[str, str], *, as_json: bool) -> None:  # noqa: ANN401 - one of several answers
    def render(console: Console) -> None:
        names = {field.name for field, _ in answer.ListFields()}
        if "application" in names:
            _render(console, [answer.application])
        if "api_key_id" in names:
            console.print(f"key {answer.api_key_id}")
        for name, secret in shown.items():
            console.print(f"{name.replace('_', ' ')}: {secret}  [dim](shown only now)[/]")
        if not names & {"application", "api_key_id"} and not shown:
            console.print("done")

    show({**as_document(answer), **shown}, as_json=as_json, render=render)


def _render(console: Console, found: Sequence[applications.Application]) -> None:
    rows = table("Applications", "name", "application", "callbacks", "provider", "state", "since")
    for one in found:
        off = " [red](answered 410)[/]" if one.callback_disabled else ""
        rows.add_row(
            plain(one.name),
            one.application_id,
            (plain(one.callback_url) or "–") + off,
            plain(one.resource_provider_url) or "–",
            "[yellow]disabled[/]" if one.disabled else "active",
            moment(one.create_time),
        )
    console.print(rows)
