// One WebSocket stream of protocol version 1 (docs/protocol.md), with the client's own measure of latency.

import { apiKey } from "./key.js";
import { RATE } from "./sources.js";

const BACKLOG_BYTES = 1 << 20;

export class CaptionStream {
  // handlers: onPartial(message, lagS), onFinal(message, latencyS), onNotice(text), onClosed(problem or null)
  constructor(handlers) {
    this.handlers = handlers;
    this.sentS = 0;
    this.sentAt = []; // [end of the chunk in seconds, when it was sent]
    this.waiting = []; // chunks from before the connection stood
    this.done = false;
    this.problem = null;
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const key = apiKey();
    // A browser sends no headers of ours with an upgrade; the server answers with "token", never with the key.
    this.socket = new WebSocket(`${scheme}//${location.host}/v1/stream`, key ? ["token", key] : []);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => this.opened();
    this.socket.onmessage = (event) => this.received(JSON.parse(event.data));
    this.socket.onclose = (event) => this.closed(event);
  }

  opened() {
    this.isOpen = true;
    this.socket.send(JSON.stringify({ type: "start", sample_rate: RATE, encoding: "pcm_s16le", channels: 1, client_ref: "page" }));
    for (const part of this.waiting.splice(0)) this.socket.send(part);
  }

  get full() {
    return this.limits?.max_audio_s !== undefined && this.sentS > this.limits.max_audio_s - 1;
  }

  send(chunk) {
    if (this.ended) return;
    this.transmit(chunk.buffer);
    this.sentS += chunk.length / RATE;
    this.sentAt.push([this.sentS, performance.now()]);
    if (this.sentAt.length > 3000) this.sentAt.shift();
  }

  end() {
    if (this.ended) return;
    this.ended = true;
    this.transmit(JSON.stringify({ type: "end" }));
  }

  transmit(part) {
    if (!this.isOpen) this.waiting.push(part);
    else if (this.socket.bufferedAmount < BACKLOG_BYTES) this.socket.send(part);
    else this.fail("the connection is too slow for live audio");
  }

  received(message) {
    if (message.type === "ready") {
      this.limits = message.limits;
    } else if (message.type === "partial") {
      this.handlers.onPartial(message, this.sinceSent(message.end_s));
    } else if (message.type === "final") {
      this.handlers.onFinal(message, message.speech_end_s === undefined ? null : this.sinceSent(message.speech_end_s));
    } else if (message.type === "done") {
      this.done = true;
    } else if (message.type === "error") {
      if (message.fatal) this.problem = message.message;
      else if (message.code !== "audio_limit") this.handlers.onNotice(message.message);
    }
  }

  // Seconds since the audio up to here was sent; null when that is long ago.
  sinceSent(endS) {
    const sent = this.sentAt.find(([chunkEndS]) => chunkEndS >= endS - 0.001);
    return sent && this.sentAt[0] !== sent ? (performance.now() - sent[1]) / 1000 : null;
  }

  fail(problem) {
    this.problem = this.problem || problem;
    this.ended = true;
    this.socket.close();
  }

  closed(event) {
    if (!this.isOpen) this.problem = this.problem || "refused";
    else if (!this.done && !this.problem) this.problem = event.reason || `the connection broke (code ${event.code})`;
    this.ended = true;
    this.handlers.onClosed(this.problem);
  }
}

export function loudness(chunk) {
  let sum = 0;
  for (const sample of chunk) sum += sample * sample;
  return Math.sqrt(sum / Math.max(1, chunk.length)) / 32768;
}
