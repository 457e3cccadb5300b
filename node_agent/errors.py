"""The base of every error that the node agent raises on purpose."""

from foundation.errors import FailedPreconditionError, InternalError, TdpError


class NodeAgentError(TdpError):
    """Base of the agent's own errors."""


class StateFolderLockedError(NodeAgentError, FailedPreconditionError):
    """Another agent uses the state folder."""

    reason = "STATE_FOLDER_LOCKED"


class StateFolderUnusableError(NodeAgentError, InternalError):
    """The state folder, or a file in it, cannot be used as it is."""

    reason = "STATE_FOLDER_UNUSABLE"


class EnrolmentRefusedError(NodeAgentError, FailedPreconditionError):
    """The control plane will not enrol this agent, however often it asks."""

    reason = "ENROLMENT_REFUSED"


class SessionRefusedError(NodeAgentError, FailedPreconditionError):
    """The control plane knows who this is and will not have it: asking again cannot help."""

    reason = "SESSION_REFUSED"


class SessionLostError(NodeAgentError):
    """The stream ended or says nothing any more: open another one."""

    reason = "SESSION_LOST"
    retryable = True
