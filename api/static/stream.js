// One stream of protocol version 1 (docs/protocol.md), over as many connections as it takes, with the client's own
// measure of latency. A connection that is lost is opened again, and the stream goes on where it was.

import { apiKey } from "./key.js";
import { KeptAudio } from "./kept.js";
import { RATE } from "./sources.js";

const BACKLOG_BYTES = 1 << 20;
const MAX_KEPT = 120 * RATE;
const BASE_MS = 100;
const CAP_MS = 5000;
const EXTRA_S = 10; // tried for so much longer than the server's resume_s: it may have seen the loss later
const CATCH_UP = 4; // what is late because of a loss goes at most so many times as fast as it was spoken
const READY_MS = 10000;
const QUIET_MS = 20000; // a server acknowledges at least every 5 s of audio; then the connection is dead
const LATER = [1001, 1005, 1006, 1012, 1013, 1014]; // closes that say nothing about the stream
const NOT_THE_STREAMS = ["shutting_down", "unavailable"]; // errors that the stream outlives
const NOT_NOW = [...NOT_THE_STREAMS, "overloaded", "internal"];
const COMING_BACK = 4000; // 1000 and 1001 would end the stream

export class CaptionStream {
  // handlers: onPartial(message, lagS), onFinal(message, latencyS), onNotice(text), onAway(), onBack(),
  // onClosed(problem or null)
  constructor(handlers) {
    this.handlers = handlers;
    this.sentAt = []; // [end of the chunk in seconds, when it was recorded]
    this.kept = new KeptAudio();
    this.lastSeq = this.knownSeq = 0;
    this.tries = 0;
    this.done = this.over = false;
    this.problem = null;
    this.connect();
  }

  connect() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const key = apiKey();
    // A browser sends no headers of ours with an upgrade; the server answers with "token", never with the key.
    const path = `/v1/stream${this.token ? "?resume=1" : ""}`; // who comes back is let in where no new stream would be
    const socket = new WebSocket(`${scheme}//${location.host}${path}`, key ? ["token", key] : []);
    socket.binaryType = "arraybuffer";
    const current = (act) => (event) => this.socket === socket && act(event);
    socket.onopen = current(() => this.opened());
    socket.onmessage = current((event) => this.received(JSON.parse(event.data)));
    socket.onclose = current((event) => this.closed(event.code, event.reason));
    this.socket = socket;
    this.streaming = this.flowing = this.endSent = false;
    this.next = this.kept.start;
    this.watch(READY_MS);
  }

  opened() {
    this.isOpen = true;
    if (this.token) {
      return this.socket.send(JSON.stringify({ type: "resume", session: this.session, token: this.token, last_seq: this.lastSeq }));
    }
    this.socket.send(JSON.stringify({ type: "start", sample_rate: RATE, encoding: "pcm_s16le", channels: 1, client_ref: "page", resume: true }));
    this.flowing = true;
    this.pump();
  }

  get full() {
    return this.limits?.max_audio_s !== undefined && this.kept.end / RATE > this.limits.max_audio_s - 1;
  }

  send(chunk) {
    if (this.ended) return;
    this.kept.add(chunk);
    this.sentAt.push([this.kept.end / RATE, performance.now()]);
    if (this.sentAt.length > 3000) this.sentAt.shift();
    if (this.kept.end - this.kept.start > MAX_KEPT) this.fail("the connection is too slow for live audio");
    else this.pump();
  }

  end() {
    this.ended = true;
    this.pump();
  }

  // Sends what is there, and behind a loss no faster than allowed.
  pump() {
    if (!this.flowing || this.over || this.pause) return;
    while (this.next < this.kept.end) {
      if (this.socket.bufferedAmount >= BACKLOG_BYTES) return this.pumpLater(100);
      const piece = this.kept.from(this.next);
      this.socket.send(piece);
      this.next += piece.length;
      if (this.session && !this.token) this.kept.acknowledge(this.next);
      if (this.late && this.next < this.kept.end) return this.pumpLater((1000 * piece.length) / RATE / CATCH_UP);
    }
    this.late = false;
    if (this.ended && !this.endSent) {
      this.endSent = true;
      this.socket.send(JSON.stringify({ type: "end" }));
    }
  }

  pumpLater(ms) {
    this.pause = setTimeout(() => {
      this.pause = null;
      this.pump();
    }, ms);
  }

  received(message) {
    this.watch(QUIET_MS);
    if (message.type === "ready") {
      this.ready(message);
    } else if (message.type === "ack") {
      this.tries = 0;
      this.kept.acknowledge(Math.round(message.received_s * RATE));
    } else if (message.type === "partial" || message.type === "final") {
      if (message.seq <= this.knownSeq) return;
      this.tries = 0;
      this.lastSeq = message.seq;
      if (message.type === "partial") this.handlers.onPartial(message, this.sinceSent(message.end_s));
      else this.handlers.onFinal(message, message.speech_end_s === undefined ? null : this.sinceSent(message.speech_end_s));
    } else if (message.type === "done") {
      this.done = true;
    } else if (message.type === "error") {
      const comesBack = this.token && (this.streaming ? NOT_THE_STREAMS : NOT_NOW).includes(message.code);
      if (message.fatal && comesBack) {
        this.comesBack = true;
        // The time in shutting_down is for new streams: a successor may be there already.
        this.retryMs = message.code === "shutting_down" ? 0 : 1000 * (message.retry_after_s || 0);
      } else if (message.fatal) this.problem = message.message;
      else if (message.code !== "audio_limit") this.handlers.onNotice(message.message);
    }
  }

  ready(message) {
    this.limits = message.limits;
    if (this.session) {
      const position = Math.round(message.received_s * RATE);
      if (!message.resumed || position < this.kept.start || position > this.kept.end) {
        return this.fail("the service went on with another stream");
      }
      this.kept.acknowledge(position);
      this.knownSeq = this.lastSeq;
      this.next = position;
      this.late = true;
      this.deadline = null;
      this.handlers.onBack();
    }
    this.session = message.session;
    this.token = message.token;
    this.resumeS = message.resume_s || 0;
    this.streaming = this.flowing = true;
    this.pump();
  }

  // Gives a connection up on which nothing was heard for too long although something was due.
  watch(ms) {
    clearTimeout(this.watching);
    this.watching = setTimeout(() => {
      if (this.over || this.done || !this.token) return;
      if (this.streaming && this.next === this.kept.start) return this.watch(ms); // nothing to acknowledge
      this.socket.close(COMING_BACK);
      this.closed(1006, "");
    }, ms);
  }

  // Seconds since the audio up to here was recorded; null when that is long ago.
  sinceSent(endS) {
    const sent = this.sentAt.find(([chunkEndS]) => chunkEndS >= endS - 0.001);
    return sent && this.sentAt[0] !== sent ? (performance.now() - sent[1]) / 1000 : null;
  }

  fail(problem) {
    if (this.over) return;
    this.problem = this.problem || problem;
    this.finish();
    this.socket.close();
  }

  closed(code, reason) {
    if (this.over) return;
    const now = performance.now();
    if (this.streaming) this.deadline = now + 1000 * (this.resumeS + EXTRA_S);
    const told = (this.streaming ? NOT_THE_STREAMS : NOT_NOW).includes(reason); // it repeats the code of a lost message
    const later = LATER.includes(code) || this.comesBack || told || (!this.streaming && code === 1011);
    if (!this.done && !this.problem && this.token && later && now < this.deadline) return this.comeBack(now);
    if (!this.isOpen) this.problem = this.problem || "refused";
    else if (!this.done && !this.problem) this.problem = reason || `the connection broke (code ${code})`;
    this.finish();
  }

  comeBack(now) {
    if (this.streaming) this.handlers.onAway();
    this.streaming = this.flowing = false;
    this.socket = null;
    const asked = Math.min(this.retryMs || 0, (this.deadline - now) / 2);
    const wait = asked + Math.random() * Math.min(CAP_MS, BASE_MS * 2 ** this.tries);
    this.tries = Math.min(this.tries + 1, 10);
    this.retryMs = 0;
    this.comesBack = false;
    clearTimeout(this.watching);
    setTimeout(() => this.over || this.connect(), Math.min(wait, this.deadline - now));
  }

  finish() {
    this.over = this.ended = true;
    clearTimeout(this.watching);
    clearTimeout(this.pause);
    this.handlers.onClosed(this.problem);
  }
}

export function loudness(chunk) {
  let sum = 0;
  for (const sample of chunk) sum += sample * sample;
  return Math.sqrt(sum / Math.max(1, chunk.length)) / 32768;
}
