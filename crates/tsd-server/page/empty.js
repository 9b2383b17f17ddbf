/** @file Content of the page while the store has no metric: how to send a first point. Ends when a metric exists. */

import { callText, suggest } from "./api.js";
import { problemBox } from "./cost.js";
import { button, copyText, el, fill } from "./dom.js";

/** Interval of the checks for a first metric. */
const LOOK_MS = 2000;

/**
 * @param {(metric: string) => void} onFirst called with the name of the first metric
 * @returns {HTMLElement}
 */
export function emptyState(onFirst) {
  const host = location.hostname.replace(/^\[|\]$/g, "");
  const port = location.port || (location.protocol === "https:" ? "443" : "80");
  const telnet = `exec 3<>/dev/tcp/${host}/${port}
while sleep 1; do echo "put sys.load $(date +%s) $(cut -d' ' -f1 /proc/loadavg) host=$(hostname)" >&3; done`;
  const curl = `curl -i '${location.origin}/api/put' -d '{"metric":"sys.load","timestamp":'$(date +%s)',"value":0.5,"tags":{"host":"web01"}}'`;
  const problem = el("div");
  const state = el(
    "div",
    { class: "empty", id: "empty" },
    el("h2", null, "There are no points yet"),
    el("p", { class: "dim" }, "Send some, and the first metric is drawn here as soon as it arrives."),
    el("p", null, "The load of this machine, every second, with bash:"),
    copyBox(telnet),
    el("p", null, "One point over HTTP:"),
    copyBox(curl),
    el("p", null, "Or a wave of two series over the last quarter of an hour, as the metric ", el("code", null, "test.wave"), ":"),
    el("div", { class: "row" }, button("Send test points", () => void send(problem), { id: "send-test" })),
    problem,
    el(
      "p",
      { class: "hint" },
      "Collectors and tools that are made for OpenTSDB, such as collectd, netdata or StatsD, send to this address unchanged.",
    ),
  );
  const look = async () => {
    try {
      const [first] = await suggest("metrics", "", 1);
      if (first !== undefined && state.isConnected) {
        onFirst(first);
      }
    } catch {
      // The next check may succeed.
    }
  };
  const timer = setInterval(() => {
    if (!state.isConnected) {
      clearInterval(timer);
    } else if (!document.hidden) {
      void look();
    }
  }, LOOK_MS);
  return state;
}

/**
 * @param {string} text
 * @returns {HTMLElement}
 */
function copyBox(text) {
  const shown = el("pre", null, text);
  const copy = button("copy", async () => {
    const copied = await copyText(text);
    copy.textContent = copied ? "copied" : "select and copy";
    if (!copied) {
      getSelection()?.selectAllChildren(shown);
    }
  });
  return el("div", { class: "copy" }, shown, copy);
}

/** @param {HTMLElement} problem */
async function send(problem) {
  const now = Math.floor(Date.now() / 1000);
  const points = [];
  for (let at = now - 900; at <= now; at += 5) {
    for (const [form, value] of /** @type {const} */ ([["sine", Math.sin(at / 60)], ["cosine", Math.cos(at / 90) / 2]])) {
      points.push({ metric: "test.wave", timestamp: at, value: Number(value.toFixed(4)), tags: { form } });
    }
  }
  try {
    await callText("/api/put", { body: points });
    fill(problem);
  } catch (error) {
    fill(problem, problemBox(error, "Put"));
  }
}
