"""The decode workers: claim jobs, fetch their audio, run the model, report.

Any number of them runs anywhere Redis can be reached; none is special and none knows another. What holds:

- Redis is authoritative. A job is a worker's only while its lease lasts, and the pair (id, generation) is the right to
  report it: whatever an older generation reports is refused there, and here that is no fault.
- A claim carries a nonce and is repeated with the same one until an answer came.
- Every claimed job ends in one report: its result, its own fault, or its release. A fault of one job of a batch is
  that job's alone.
- A decode is a function of the audio: no earlier text, nothing drawn by chance, the same under any load.
- When the process dies, at any point, its leases run out and others decode the jobs again. When Redis goes away, the
  worker waits and offers what it has finished. When a decode hangs, the process ends itself.

```
 main thread    signals, deadlines, exit (lifecycle.Watch)
 decode         load the model, then claim -> fetch -> decode -> report (worker.Worker)
 lease-keeper   renews what is held, each third of a lease
 heartbeat      says who this is and what it does, every 2 s
 rescue         sweeps for jobs that dead workers left behind, keeps ranks up to date (queueing.rescue)
```
"""

import os

# onnxruntime, which judges where speech is, would write an identity of the machine to its user's home and report to
# its maker; it looks here when it is loaded. Who wants that sets it to 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # noqa: TID251
