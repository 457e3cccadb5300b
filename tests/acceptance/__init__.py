"""Real processes, one platform for many tests, and what the issue promised to show."""
