// Audio that the server has not acknowledged: what must be sent again on another connection. Positions are samples.

export class KeptAudio {
  constructor() {
    this.chunks = [];
    this.start = 0; // all before is acknowledged
    this.end = 0;
  }

  add(chunk) {
    this.chunks.push(chunk);
    this.end += chunk.length;
  }

  acknowledge(position) {
    while (this.chunks.length && this.start + this.chunks[0].length <= position) this.start += this.chunks.shift().length;
    if (this.chunks.length && this.start < position) {
      this.chunks[0] = this.chunks[0].slice(position - this.start);
      this.start = position;
    }
  }

  // The samples from `position` to the end of their chunk.
  from(position) {
    let first = this.start;
    for (const chunk of this.chunks) {
      if (position < first + chunk.length) return chunk.slice(position - first);
      first += chunk.length;
    }
    return null;
  }
}
