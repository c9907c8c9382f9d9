// Runs the page's own stream against a service: node --experimental-websocket --experimental-default-type=module
// page_stream.js HOST:PORT PCM_FILE MS_PER_CHUNK STATIC_FOLDER. Prints one JSON object.

import { readFileSync } from "node:fs";

const [host, file, every, folder] = process.argv.slice(2);
globalThis.location = { protocol: "http:", host };
globalThis.sessionStorage = { getItem: () => null };
const { CaptionStream } = await import(`${folder}/stream.js`);

const bytes = readFileSync(file);
const samples = new Int16Array(bytes.buffer, bytes.byteOffset, bytes.length >> 1);
const seen = { seqs: [], finals: [], away: 0, back: 0 };
const stream = new CaptionStream({
  onPartial: (message) => seen.seqs.push(message.seq),
  onFinal: (message) => seen.seqs.push(message.seq) && seen.finals.push(message.text),
  onNotice: () => {},
  onAway: () => (seen.away += 1),
  onBack: () => (seen.back += 1),
  onClosed: (problem) => {
    console.log(JSON.stringify({ ...seen, problem }));
    process.exit(0);
  },
});
let at = 0;
const timer = setInterval(() => {
  if (at < samples.length) return stream.send(samples.slice(at, (at += 1600)));
  clearInterval(timer);
  stream.end();
}, Number(every));
