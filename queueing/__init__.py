"""The Redis queue of decode jobs: lanes, policies, leases. Knows nothing of audio, sockets or models.

Invariants:

- Redis is authoritative: for time (what orders jobs or ends leases is its clock), for the policy, for every state.
- One verb is one script: it happens whole or not at all. enqueue, claim and complete take one round trip each.
- Every verb may be repeated after a lost reply: enqueue by the job's id, claim by (worker, nonce), reports by
  (id, generation).
- The right to report on a job is its generation, counted up by each claim: an older one changes nothing.
- Ready work implies a token in the wake list, or a worker that took one and will claim.
- At most one partial of a session is queued or leased; none is accepted once its segment's final is.
- Finals and files end as done or dead, each with a durable event, unless their session is cancelled.
- Everything is bounded, and expires unless docs/redis-keys.md says why not.

States of a job::

    enqueue --> queued --claim--> leased --complete--> done
                 ^  |               |  |
                 |  |               |  +--fail, lease lost, no attempt left--> dead     (a partial: dropped)
                 |  +-- too old --> dead
                 +--release; fail, lease lost, attempts left (never a partial)
    queued or leased --final came, session over--> cancelled

Modules: `job_queue` is the facade and the only caller of `scripts` (signatures in `verbs`, texts in ``lua/``);
`policy_store`, `registry` and `stats` are its parts; `rescue` is the loop that every worker runs. Pure: `job`, `lane`,
`policy`, `policies`, `costs`, `limits`.
"""
