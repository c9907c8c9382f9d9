"""Streams as sessions: the wire protocol, the state machine, the audio buffer, the events, the global cap.

Who is authoritative: the session (`sessions.session`, pure) for what a client hears; Redis for what was accepted
(`audio_buffer`), decoded (the queue's durable events) and how many streams there are (`admission`). Pub/sub
(`events`) is only speed: what it loses is read from the durable events.

1. Every accepted sample is covered by exactly one final, or the stream ends with an explicit error.
2. A final is said once, never changed, never out of order; ``seq`` has no gap.
3. At most one partial of a session is queued or running; none follows the final it belongs to.
4. Everything is bounded: audio that is not final yet, messages and finals in flight, memory, wrong messages, waiting
   times, key lifetimes; the length of a stream is not.
5. Where a stream is cut into segments follows from its samples and its flushes alone (`endpointing`). What is silence
   there is neither decoded nor stored, and still covered by a final.
6. Bytes are recognised (`sniff`) before they are taken for sound: a file's header never becomes speech.
7. What a final covers is noted before its job is queued, its number before it is sent (`ledger`): a stream that lost
   its connection or its front end goes on at any other (`resumption`), and nothing is said twice.

If the client leaves, its jobs, events, audio and slot go at once; if its connection is lost they wait for it
(`parking`) and go when it does not come back, and so do those of a front end that dies. If Redis forgets, the next
append, read or repeated enqueue finds out and the client is told `state_lost`. If pub/sub breaks, `FrontListener`
subscribes again and every waiting session reads its events.
"""
