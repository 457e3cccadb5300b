"""A seeded world of replicas, nodes, links and one database, in which the lease rules must hold."""
