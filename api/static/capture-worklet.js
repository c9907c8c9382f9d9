// Microphone samples at the device's rate become 16 kHz PCM16 in chunks of 100 ms.
// Resampling is by a windowed sinc (Hann, 16 zero crossings each side) with its cutoff below the lower of the
// two Nyquist frequencies; plain linear interpolation would fold hiss above 8 kHz into the speech band.

const TARGET_RATE = 16000;
const CHUNK = TARGET_RATE / 10;
const CROSSINGS = 16;
const STEPS = 256; // table entries per zero crossing

function kernelTable() {
  const table = new Float32Array(CROSSINGS * STEPS + 2);
  for (let i = 0; i < table.length; i++) {
    const x = i / STEPS;
    const sinc = x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
    table[i] = x >= CROSSINGS ? 0 : sinc * (0.5 + 0.5 * Math.cos((Math.PI * x) / CROSSINGS));
  }
  return table;
}

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.step = sampleRate / TARGET_RATE;
    this.scale = Math.min(1, 1 / this.step) * 0.95; // cutoff relative to the input's Nyquist frequency
    this.half = Math.ceil(CROSSINGS / this.scale);
    this.table = kernelTable();
    this.input = new Float32Array(0);
    this.position = this.half; // of the next output sample, in input samples
    this.chunk = new Int16Array(CHUNK);
    this.filled = 0;
    this.open = true;
    this.port.onmessage = () => this.finish();
  }

  process(inputs) {
    const channels = inputs[0];
    if (!this.open) return false;
    if (!channels.length) return true;
    const length = channels[0].length;
    const joined = new Float32Array(this.input.length + length);
    joined.set(this.input);
    for (const channel of channels) {
      for (let i = 0; i < length; i++) joined[this.input.length + i] += channel[i] / channels.length;
    }
    this.input = joined;
    while (this.position + this.half < this.input.length) this.emit(this.sampleAt(this.position));
    const done = Math.max(0, Math.floor(this.position) - this.half);
    this.input = this.input.slice(done);
    this.position -= done;
    return true;
  }

  sampleAt(position) {
    const first = Math.ceil(position - this.half);
    const last = Math.floor(position + this.half);
    let sum = 0;
    for (let i = Math.max(0, first); i <= last; i++) {
      const x = Math.abs(i - position) * this.scale * STEPS;
      const index = x | 0;
      if (index >= CROSSINGS * STEPS) continue;
      const left = this.table[index];
      sum += this.input[i] * (left + (this.table[index + 1] - left) * (x - index));
    }
    return sum * this.scale;
  }

  emit(value) {
    this.position += this.step;
    this.chunk[this.filled++] = Math.max(-32768, Math.min(32767, Math.round(value * 32767)));
    if (this.filled === CHUNK) this.flush();
  }

  flush() {
    if (!this.filled) return;
    const part = this.chunk.slice(0, this.filled);
    this.port.postMessage(part, [part.buffer]);
    this.filled = 0;
  }

  finish() {
    this.flush();
    this.open = false;
    this.port.postMessage(null);
  }
}

registerProcessor("capture", Capture);
