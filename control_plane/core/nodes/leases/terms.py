"""The identities and instants of which the lease rules speak."""

from typing import NewType

NodeId = NewType("NodeId", str)
ReplicaId = NewType("ReplicaId", str)
"""One process of the control plane; new with each start."""
IncarnationId = NewType("IncarnationId", str)
"""One journal of a node agent; new with each new journal."""
LeaseVersion = NewType("LeaseVersion", int)
Generation = NewType("Generation", int)
DatabaseSeconds = NewType("DatabaseSeconds", float)
"""An instant by the database's clock, in seconds since its epoch."""
