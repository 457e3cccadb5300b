"""Declares the stand-ins: each answers from the names it is given, and touches no video."""

import hashlib
from typing import Any

from pydantic import BaseModel, Field

from node_agent.sdk import Context, Fatal, capability

SEGMENT_S = 30
SEGMENTS_MAX = 6
REVIEW = "REVIEW"
CLEAR = "CLEAR"


class Video(BaseModel):
    """A video, by its reference."""

    video_ref: str = Field(min_length=1)


class Segment(BaseModel):
    """A piece of a video, in seconds from its start."""

    start_s: int = Field(ge=0)
    end_s: int = Field(gt=0)


class Probed(BaseModel):
    """What a video consists of."""

    segments: list[Segment]
    has_sound: bool


@capability("video.probe", version="1", mode="inline", supports_resume=True)
async def probe(_ctx: Context, given: Video) -> Probed:
    """Answer one to six segments, by the reference's length."""
    count = 1 + len(given.video_ref) % SEGMENTS_MAX
    segments = [Segment(start_s=n * SEGMENT_S, end_s=(n + 1) * SEGMENT_S) for n in range(count)]
    return Probed(segments=segments, has_sound="silent" not in given.video_ref)


class Piece(Video):
    """A segment of a video."""

    segment: Segment


class Frames(BaseModel):
    """References of the frames that were taken."""

    frames: list[str]


@capability("video.frames", version="1", mode="inline", supports_resume=True)
async def frames(_ctx: Context, given: Piece) -> Frames:
    """Name a frame for every ten seconds."""
    seconds = range(given.segment.start_s, given.segment.end_s, 10)
    return Frames(frames=[f"{given.video_ref}#t={second}" for second in seconds])


class Search(BaseModel):
    """Frames, and what to look for in them."""

    frames: list[str]
    labels: list[str]


class Finding(BaseModel):
    """A label that was seen, how surely from 0 to 1, and where."""

    label: str
    score: float = Field(ge=0, le=1)
    frame: str


class Detections(BaseModel):
    """What was seen."""

    findings: list[Finding]


@capability("video.detect", version="1", mode="inline", supports_resume=True)
async def detect(_ctx: Context, given: Search) -> Detections:
    """See each label that occurs in a frame's reference, with a score that depends on both."""
    return Detections(
        findings=[
            Finding(label=label, score=_score(label, frame), frame=frame)
            for frame in given.frames
            for label in given.labels
            if label in frame
        ]
    )


def _score(label: str, frame: str) -> float:
    return hashlib.sha256(f"{label} {frame}".encode()).digest()[0] / 255


class Transcript(BaseModel):
    """What is said."""

    text: str


@capability("speech.transcribe", version="1", mode="inline", supports_resume=True)
async def transcribe(_ctx: Context, given: Video) -> Transcript:
    """Say what the video is called; a hum is no language."""
    if "hum" in given.video_ref:
        raise Fatal("LANGUAGE_UNKNOWN", "what is heard is no language that is known here")
    return Transcript(text=f"This is {given.video_ref}.")


class Evidence(BaseModel):
    """Everything that the machines found; no transcript where there is no sound."""

    detections: list[Detections]
    transcript: Transcript | None
    review_score: float


class Assessment(BaseModel):
    """CLEAR, or REVIEW where a person has to look; the findings that led to it."""

    verdict: str
    findings: list[Finding]


@capability("review.assess", version="1", mode="inline", supports_resume=True)
async def assess(_ctx: Context, given: Evidence) -> Assessment:
    """Ask for a review if any finding is as sure as the threshold."""
    found = [one for each in given.detections for one in each.findings]
    telling = [one for one in found if one.score >= given.review_score]
    return Assessment(verdict=REVIEW if telling else CLEAR, findings=telling)


class Reviewed(Video):
    """What becomes a version; the review is a person's answer, None where nobody was asked."""

    version: int = Field(ge=1)
    verdict: str
    findings: list[Finding]
    review: dict[str, Any] | None


class Version(BaseModel):
    """A version of the result, with a digest over all that it rests on."""

    version: int
    digest: str


@capability("result.version", version="1", mode="inline", supports_resume=True)
async def version(_ctx: Context, given: Reviewed) -> Version:
    """Number the result; the same one has the same digest, however often it is made."""
    digest = hashlib.sha256(given.model_dump_json().encode()).hexdigest()
    return Version(version=given.version, digest=digest)


class Notice(BaseModel):
    """A text for whoever looks after the reviews."""

    text: str


@capability("notice.send", version="1", mode="inline", supports_resume=True)
async def send(ctx: Context, given: Notice) -> Notice:
    """Log the text."""
    ctx.log.warning("notice", text=given.text)
    return given
