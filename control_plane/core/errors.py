"""The base of every error of the control plane, and those that several areas share."""

from foundation.errors import InternalError, InvalidArgumentError, TdpError


class ControlPlaneError(TdpError):
    """Base of all errors that the control plane raises on purpose."""


class TransitionForbiddenError(ControlPlaneError, InternalError):
    """A state machine was asked for a move that its table does not have: a defect of the caller."""

    reason = "TRANSITION_FORBIDDEN"


class DocumentInvalidError(ControlPlaneError, InvalidArgumentError):
    """A JSON document breaks its schema, its bounds or JSON itself."""

    reason = "DOCUMENT_INVALID"
