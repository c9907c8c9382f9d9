// Where audio comes from. A source calls onChunk(Int16Array at 16 kHz) at real-time pace, then onEnd() once.

export const RATE = 16000;
const CHUNK = RATE / 10;

export class Microphone {
  static async open() {
    if (!navigator.mediaDevices || !window.isSecureContext) {
      throw new Error("browsers give a microphone only to pages on https:// or http://localhost");
    }
    let media;
    try {
      media = await navigator.mediaDevices.getUserMedia({
        audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true, autoGainControl: true },
      });
    } catch (error) {
      const known = {
        NotAllowedError: "this page may not use the microphone; allow it in the address bar and try again",
        NotFoundError: "no microphone was found; plug one in, or choose an audio file",
        NotReadableError: "the microphone is in use by another program",
      };
      throw new Error(known[error.name] || error.message);
    }
    try {
      const context = new AudioContext();
      await context.audioWorklet.addModule("/static/capture-worklet.js");
      return new Microphone(media, context);
    } catch (error) {
      media.getTracks().forEach((track) => track.stop());
      throw error;
    }
  }

  constructor(media, context) {
    this.name = "listening";
    this.media = media;
    this.context = context;
  }

  start(onChunk, onEnd) {
    this.node = new AudioWorkletNode(this.context, "capture", { numberOfOutputs: 0 });
    this.node.port.onmessage = (event) => {
      if (event.data) return onChunk(event.data);
      this.release();
      onEnd();
    };
    this.context.createMediaStreamSource(this.media).connect(this.node);
    this.media.getTracks()[0].addEventListener("ended", () => this.stop());
    this.context.resume();
  }

  stop() {
    if (this.node) this.node.port.postMessage("finish");
    else this.release();
  }

  release() {
    this.media.getTracks().forEach((track) => track.stop());
    if (this.context.state !== "closed") this.context.close();
  }
}

export class AudioFile {
  static async open(file) {
    // decodeAudioData resamples to its context's rate.
    const decoder = new OfflineAudioContext(1, 1, RATE);
    let audio;
    try {
      audio = await decoder.decodeAudioData(await file.arrayBuffer());
    } catch {
      throw new Error(`this browser cannot decode “${file.name}”; try WAV, FLAC, MP3, Ogg or MP4`);
    }
    if (!audio.length) throw new Error(`“${file.name}” holds no sound`);
    return new AudioFile(file.name, audio);
  }

  constructor(name, audio) {
    this.name = `playing ${name}`;
    this.audio = audio;
    this.samples = mono16(audio);
    this.sent = 0;
  }

  start(onChunk, onEnd) {
    this.onEnd = onEnd;
    this.context = new AudioContext();
    const player = this.context.createBufferSource();
    player.buffer = this.audio;
    player.connect(this.context.destination);
    player.start();
    const started = performance.now();
    this.timer = setInterval(() => {
      const due = ((performance.now() - started) / 1000) * RATE;
      while (this.sent < this.samples.length && this.sent + CHUNK <= due + CHUNK / 2) {
        onChunk(this.samples.slice(this.sent, this.sent + CHUNK));
        this.sent += CHUNK;
      }
      if (this.sent >= this.samples.length) this.stop();
    }, 50);
  }

  stop() {
    clearInterval(this.timer);
    if (!this.context || this.context.state === "closed") return;
    this.context.close();
    this.onEnd();
  }
}

function mono16(audio) {
  const samples = new Int16Array(audio.length);
  const channels = Array.from({ length: audio.numberOfChannels }, (_, index) => audio.getChannelData(index));
  for (let i = 0; i < audio.length; i++) {
    let sum = 0;
    for (const channel of channels) sum += channel[i];
    samples[i] = Math.max(-32768, Math.min(32767, Math.round((sum / channels.length) * 32767)));
  }
  return samples;
}
