"""The DAG engine: from a frozen workflow, facts and the time to what has to happen next."""
