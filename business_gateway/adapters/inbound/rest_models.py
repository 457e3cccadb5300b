"""The bodies of the REST interface, as its OpenAPI document shows them."""

from datetime import datetime
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from business_gateway.adapters.inbound.rest_problems import PROBLEM_MEDIA_TYPE

OrderStatusName = Literal[
    "SUBMITTING", "PROCESSING", "COMPLETED", "NEEDS_ATTENTION", "CANCELING", "CANCELED"
]
ProcessingModeName = Literal["ARCHIVE_CLEAN_ONLY", "ARCHIVE_CLEAN_THEN_WATERMARK"]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class AssetAnnouncement(_Request):
    """An asset to come."""

    name: str = Field(description="1 to 200 characters after trimming.")
    size_bytes: int = Field(description="The file's size; checked when it is completed.")
    sha256: str = Field("", description="64 hexadecimal digits; checked where given.")


class OrderCreation(_Request):
    """An order as it is asked for."""

    name: str = Field(description="1 to 200 characters after trimming.")
    processing_mode: str = Field(description="ARCHIVE_CLEAN_ONLY or ARCHIVE_CLEAN_THEN_WATERMARK.")
    watermark_text: str = Field(
        "", description="1 to 100 characters after trimming for the latter, else empty."
    )
    source_asset_id: str = Field(description="The id of a READY asset.")


class OrderCancellation(_Request):
    """A wish to end an order."""

    reason: str = Field("", description="At most 500 characters; recorded.")


class OrderRerun(_Request):
    """A wish to run a finished order again."""

    mode: str = Field(
        "FROM_SCRATCH",
        description="FROM_SCRATCH: everything runs again.",
    )
    reason: str = Field("", description="At most 500 characters; recorded.")


class UploadDocument(BaseModel):
    """A request that uploads the bytes: a secret until it expires."""

    method: Literal["PUT"]
    url: str
    headers: dict[str, str] = Field(description="To be sent with the request.")
    expires_at: datetime


class AssetDocument(BaseModel):
    """A source file."""

    asset_id: str
    name: str
    state: Literal["UPLOADING", "READY", "REJECTED"]
    media_type: str
    size_bytes: int | None = Field(description="As found in the store; null before.")
    sha256: str | None = Field(description="In hexadecimal, where it is known.")
    rejection_reason: str | None
    rejection_message: str | None
    created_at: datetime
    decided_at: datetime | None


class AnnouncedAsset(BaseModel):
    """A new asset and how to upload it."""

    asset: AssetDocument
    upload: UploadDocument


class OrderDocument(BaseModel):
    """An order, with where it stands for the business and for the platform."""

    order_id: str
    name: str
    processing_mode: ProcessingModeName
    watermark_text: str
    source_asset_id: str
    status: OrderStatusName
    progress_percent: int
    run: int = Field(description="0 before the platform has it.")
    task_id: str | None
    execution_id: str | None
    platform_status: str = Field(description="The platform's own word, for display only.")
    diagnosis: str = Field(description="Why it needs attention, in a sentence.")
    diagnosis_json: str | None = Field(description="The platform's failure as JSON text.")
    output_json: str | None = Field(description="The output as JSON text.")
    version: int = Field(description="Grows with every change; the ETag.")
    cancel_requested_at: datetime | None
    created_at: datetime
    updated_at: datetime
    completed_at: datetime | None


class OrderPageDocument(BaseModel):
    """Some orders, newest first."""

    orders: list[OrderDocument]
    next_cursor: str = Field(description="For the next page; empty on the last one.")


class OrderChangeDocument(BaseModel):
    """One version of an order: the data of a live event."""

    order_id: str
    version: int
    kind: str
    status: OrderStatusName
    platform_status: str
    run: int
    progress_percent: int
    diagnosis: str
    occurred_at: datetime


class ArtifactDocument(BaseModel):
    """A result file."""

    artifact_id: str
    order_id: str
    execution_id: str
    step_key: str
    relative_path: str
    type: str
    media_type: str
    size_bytes: int
    sha256: str
    committed_at: datetime


class ArtifactPageDocument(BaseModel):
    """Some result files, by path."""

    artifacts: list[ArtifactDocument]
    next_cursor: str = Field(description="For the next page; empty on the last one.")


class DisturbanceDocument(BaseModel):
    """What went wrong at a rung and what was done about it."""

    kind: str
    description: str
    occurred_at: datetime | None


class RungDocument(BaseModel):
    """One hop's durable fact, or its absence."""

    hop: int
    title: str
    state: Literal["DURABLE", "CURRENT", "AHEAD", "NOT_APPLICABLE", "UNKNOWN"]
    store: str
    location: str
    identity: str
    record: str
    durable_at: datetime | None
    actor: str
    summary: str
    disturbances: list[DisturbanceDocument]


class LadderDocument(BaseModel):
    """The ten rungs of an order's journey."""

    order_id: str
    verdict: str
    platform_reached: bool
    rungs: list[RungDocument]


class FieldProblem(BaseModel):
    """One field that is wrong."""

    pointer: str
    detail: str
    reason: str = ""


class ProblemDocument(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    reason: str
    retryable: bool
    instance: str = ""
    metadata: dict[str, str] = {}
    errors: list[FieldProblem] = []


_MEANINGS: Final = {
    400: "The request cannot be read: malformed, or without its Idempotency-Key.",
    401: "No valid API key.",
    403: "A session of the page that may not do this.",
    404: "No such thing.",
    409: "Its state does not allow it, or the same request is still running.",
    413: "Too many bytes.",
    422: "A field is wrong, or the Idempotency-Key was used for another request.",
    500: "A defect of ours; the problem carries an error id.",
    503: "Try again after Retry-After.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route for these statuses and those that every route has."""
    schema = {"$ref": "#/components/schemas/ProblemDocument"}
    return {
        status: {
            "description": _MEANINGS[status],
            "content": {PROBLEM_MEDIA_TYPE: {"schema": schema}},
        }
        for status in sorted({*statuses, 401, 403, 500, 503})
    }
