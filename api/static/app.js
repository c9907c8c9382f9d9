// The page: a source of audio, streams, and what is shown of both.

import { apiKey, headers, keepApiKey } from "./key.js";
import { AudioFile, Microphone } from "./sources.js";
import { CaptionStream, loudness } from "./stream.js";

const STATUS_EVERY_MS = 3000;
const at = (id) => document.getElementById(id);
const captions = at("captions");
let source = null;
let stream = null;
let streams = 0; // open, with those that still finish

function seconds(value) {
  return value === null ? "–" : `${value.toFixed(value < 10 ? 2 : 1)} s`;
}

function tell(text, tone = "error") {
  at("problem").hidden = !text;
  at("problem").textContent = text || "";
  at("problem").dataset.tone = tone;
}

function show() {
  const busy = source !== null || streams > 0;
  at("microphone").hidden = at("choose").hidden = busy;
  at("stop").hidden = source === null;
  at("activity").hidden = !busy;
  at("activity-text").textContent = source ? source.name : "finishing …";
  if (!source) at("level").style.setProperty("--level", 0);
  at("copy").disabled = at("clear").disabled = busy || !captions.querySelector(".text");
}

// One paragraph per stream: its finals, then its one provisional text.
function newStream() {
  const paragraph = document.createElement("p");
  paragraph.className = "text";
  const partial = document.createElement("span");
  partial.className = "partial";
  partial.setAttribute("aria-hidden", "true");
  partial.hidden = true;
  const stable = document.createElement("span");
  stable.className = "stable";
  const tentative = document.createElement("span");
  partial.append(stable, tentative);
  paragraph.append(partial);
  at("hint").hidden = true;
  captions.append(paragraph);
  let said = false;
  streams += 1;
  return new CaptionStream({
    onPartial(message, lagS) {
      stable.textContent = message.stable;
      tentative.textContent = message.text.slice(message.stable.length);
      partial.hidden = !message.text;
      at("lag").textContent = seconds(lagS);
      follow();
    },
    onFinal(message, latencyS) {
      partial.hidden = true;
      if (message.text) {
        said = true;
        const final = document.createElement("span");
        final.className = "final";
        final.textContent = `${message.text.trim()} `;
        partial.before(final);
      }
      if (latencyS !== null) at("final-latency").textContent = seconds(latencyS);
      if (message.timing) {
        at("timing").textContent = `${seconds(message.timing.queue_ms / 1000)} + ${seconds(message.timing.decode_ms / 1000)}`;
      }
      follow();
    },
    onNotice: (text) => tell(text, "notice"),
    onAway: () => tell("The connection broke; reconnecting …", "notice"),
    onBack: () => tell(""),
    onClosed: async (problem) => {
      streams -= 1;
      partial.hidden = true;
      if (!said) {
        paragraph.classList.add("silent");
        paragraph.textContent = problem ? "" : "(nothing was said)";
      }
      if (problem) {
        source?.stop();
        tell(problem === "refused" ? await whyRefused() : problem);
      }
      show();
    },
  });
}

function follow() {
  captions.scrollTop = captions.scrollHeight;
}

async function begin(open) {
  tell("");
  at("microphone").disabled = at("choose").disabled = true;
  try {
    source = await open();
  } catch (error) {
    tell(`That did not work: ${error.message}.`);
    return;
  } finally {
    at("microphone").disabled = at("choose").disabled = false;
  }
  stream = newStream();
  source.start(
    (chunk) => {
      if (stream.full) {
        stream.end(); // its last text still comes; the rest goes to the next stream
        stream = newStream();
      }
      at("level").style.setProperty("--level", Math.min(1, loudness(chunk) * 6));
      stream.send(chunk);
    },
    () => {
      stream.end();
      source = null;
      show();
    },
  );
  show();
}

// A browser does not show a page why an upgrade was refused, so the service is asked.
async function whyRefused() {
  try {
    const answer = await fetch("/v1/status", { headers: headers() });
    if (answer.status === 401) return askForKey();
    const status = await answer.json();
    if (status.streams.all >= status.streams.max) return `All ${status.streams.max} streams are in use; try again in a few seconds.`;
    if (status.reasons.length) return `The service refused the stream: ${status.reasons.join("; ")}.`;
    return "The service refused the stream; try again in a few seconds.";
  } catch {
    return "The service cannot be reached; is it still running?";
  }
}

function askForKey() {
  at("access").hidden = false;
  return apiKey() ? "The API key is not valid here; correct it below." : "This service needs an API key; give it below.";
}

function readiness(state, text, title = "") {
  const pill = at("readiness");
  pill.dataset.state = state;
  pill.textContent = text;
  pill.title = title;
}

async function refreshStatus() {
  try {
    const answer = await fetch("/v1/status", { headers: headers(), signal: AbortSignal.timeout(2500) });
    if (answer.status === 401) {
      askForKey();
      return readiness("waiting", apiKey() ? "the API key is not valid" : "an API key is needed");
    }
    const status = await answer.json();
    const model = status.workers.find((worker) => worker.ready)?.model;
    if (status.ready) readiness("ready", model ? `ready · ${model}` : "ready");
    else readiness("waiting", `not ready: ${status.reasons[0]}`, status.reasons.join("\n"));
    at("streams").textContent = `${status.streams.all ?? "?"} of ${status.streams.max}`;
    at("waiting").textContent = status.queue.waiting ?? "?";
    at("workers").textContent = status.workers.filter((worker) => worker.ready).length;
    at("policy").textContent = status.policy;
  } catch {
    readiness("away", "the service does not answer");
  }
}

at("microphone").addEventListener("click", () => begin(() => Microphone.open()));
at("choose").addEventListener("click", () => at("file").click());
at("file").addEventListener("change", (event) => {
  const [file] = event.target.files;
  event.target.value = "";
  if (file) begin(() => AudioFile.open(file));
});
at("access").addEventListener("submit", (event) => {
  event.preventDefault();
  keepApiKey(at("key").value.trim());
  at("key").value = "";
  at("access").hidden = true;
  tell("");
  refreshStatus();
});
at("stop").addEventListener("click", () => source?.stop());
at("clear").addEventListener("click", () => {
  captions.querySelectorAll(".text").forEach((paragraph) => paragraph.remove());
  at("hint").hidden = false;
  show();
});
at("copy").addEventListener("click", async () => {
  const text = [...captions.querySelectorAll(".text")].map((paragraph) => paragraph.innerText.trim()).join("\n");
  await navigator.clipboard.writeText(text);
  at("copy").textContent = "Copied";
  setTimeout(() => (at("copy").textContent = "Copy"), 1500);
});
show();
refreshStatus();
setInterval(() => document.hidden || refreshStatus(), STATUS_EVERY_MS);
