"""Chaos harness: breaks a whole service of its own in a planned way, and keeps books on what its clients get.

    seed --> plan (faults, streams) --+--> processes: 2 web, 3 workers, Redis ----------+
                                      |       every connection through a proxy of ours  |
                                      +--> clients --> records --> books --> violations <+-- looks into Redis

Nothing here trusts the service: the clients know the wire protocol only, the books are computed from what was sent,
what came and a quiet reference run, and each explicit error must be excused by a fault that can have caused it.
"""
