// One answer as it comes: its text, what was noticed and refused, and what it took.
import { dollars, Meter } from "./amounts.js";
import { render } from "./markdown.js";

const RENDERED_WHILE_LIVE = 8_000;
const PAUSE_MS = 120;
const LIMITS = { used: "used", limit_value: "limit", limit: "which", scope: "of" };

export class Answer {
  constructor(log, prices) {
    this.element = copy("play-answer");
    this.body = this.element.querySelector("[data-body]");
    this.prices = prices;
    this.text = "";
    this.calls = [];
    this.meter = new Meter();
    this.timer = null;
    log.append(this.element);
  }

  take(frame) {
    if (frame.type === "notice") this.#notice(frame);
    else if (frame.type === "chunk") this.#chunk(frame.data);
    else if (frame.type === "done") this.#done(frame);
    else if (frame.type === "error") this.fail(frame.error);
    else this.#cut();
  }

  // Without a last frame nobody here knows what it cost.
  fail(error) {
    this.prices = null;
    this.#finish();
    if (!this.meter.pieces) this.element.querySelector("dl").hidden = true;
    this.#say("bad", error.message, [error.code, ...limitWords(error.penstock)]);
  }

  #notice(frame) {
    if (frame.queue === "relaxed") {
      const wait = frame.expected_wait_ms ? ` Expected wait: ${(frame.expected_wait_ms / 1000).toFixed(1)} s.` : "";
      this.#say("warn", `The queue is longer than the tier promises; the request waits.${wait}`, [frame.queue]);
    }
    if (frame.queue === "starting") this.#say("warn", "No worker of this model is ready yet; the request waits for one.", [frame.queue]);
    if (frame.queue === "waiting") this.#say("warn", "The request waits in the queue.", [frame.queue]);
    if (frame.model_instead_of) {
      this.#say("warn", `A smaller model answers in place of ${frame.model_instead_of}, as the project chose.`, ["model_instead_of"]);
      this.prices = null;
    }
    if (frame.adapter) this.#say("info", `Answered by ${frame.adapter}.`, []);
  }

  #chunk(data) {
    const choice = data.choices?.[0];
    const delta = choice?.delta ?? {};
    const piece = delta.content ?? delta.reasoning_content ?? "";
    for (const call of delta.tool_calls ?? []) this.#call(call);
    if (piece || delta.tool_calls?.length) this.meter.piece();
    if (!piece) return;
    this.text += piece;
    this.timer ??= setTimeout(() => this.#show(true), PAUSE_MS);
  }

  #call({ index = 0, id, function: asked = {} }) {
    const call = (this.calls[index] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
    if (id) call.id = id;
    call.function.name += asked.name ?? "";
    call.function.arguments += asked.arguments ?? "";
    this.timer ??= setTimeout(() => this.#show(true), PAUSE_MS);
  }

  #show(isLive) {
    this.timer = null;
    if (isLive && this.text.length > RENDERED_WHILE_LIVE) {
      this.body.classList.add("plain-text");
      this.body.textContent = this.text;
    } else render(this.body, this.text);
    this.#showCalls();
    this.#figures(isLive);
    this.changed?.();
  }

  #showCalls() {
    const box = this.element.querySelector("[data-calls]");
    box.hidden = !this.calls.length;
    box.replaceChildren(...this.calls.map((call) => {
      const line = document.createElement("pre");
      line.tabIndex = 0;
      line.textContent = `${call.function.name}(${call.function.arguments})`;
      return line;
    }));
  }

  #figures(isLive) {
    const { firstTokenMs, tokensPerSecond, usage } = this.meter;
    this.#figure("first", firstTokenMs === null ? "–" : `${firstTokenMs.toLocaleString("en")} ms`);
    this.#figure("rate", tokensPerSecond === null ? "–" : `${tokensPerSecond.toFixed(1)} /s`);
    const prompt = usage ? `${usage.prompt_tokens.toLocaleString("en")} in, ` : "";
    this.#figure("tokens", `${prompt}${this.meter.tokens.toLocaleString("en")} out`);
    this.#figure("cost", this.prices ? `${dollars(this.meter.cost(this.prices))}${isLive ? " so far" : ""}` : "see Usage");
  }

  #figure(name, text) {
    this.element.querySelector(`[data-figure=${name}]`).textContent = text;
  }

  #done(frame) {
    this.meter.usage = frame.usage;
    this.#finish();
    if (frame.finish_reason === "cancelled") this.#say("info", "You stopped this answer. What was generated until then is billed.", []);
    if (frame.finish_reason === "length") this.#say("info", "The answer reached its longest length.", ["length"]);
    this.isWhole = frame.finish_reason !== "cancelled";
  }

  #cut() {
    this.prices = null;
    this.#finish();
    const when = this.meter.pieces ? `after ${this.meter.pieces.toLocaleString("en")} pieces` : "before its first token";
    this.#say("bad", `The connection was lost: this answer is cut off ${when}. It is not sent again; what was generated is billed.`, []);
  }

  #finish() {
    clearTimeout(this.timer);
    this.isOver = true;
    this.element.removeAttribute("aria-busy");
    this.#show(false);
  }

  #say(kind, text, codes) {
    const notice = copy(`play-notice-${kind}`);
    notice.querySelector("[data-text]").textContent = text;
    notice.querySelector("[data-codes]").textContent = codes.filter(Boolean).join(", ");
    this.element.querySelector("[data-notices]").append(notice);
    this.changed?.();
  }
}

export function copy(id) {
  return document.getElementById(id).content.firstElementChild.cloneNode(true);
}

function limitWords(details) {
  if (!details) return [];
  const words = Object.entries(LIMITS).filter(([name]) => details[name] !== undefined && details[name] !== null).map(([name, word]) => `${word} ${details[name].toLocaleString("en")}`);
  const reset = details.reset_seconds;
  return [...words, reset === null || reset === undefined ? "" : `free again in ${reset} s`];
}
