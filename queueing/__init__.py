"""The Redis queue of decode jobs: lanes, policies, leases."""
