// One model's side of the page: its conversation, and the request that is open.
import { pricesOf } from "./amounts.js";
import { Answer, copy } from "./answer.js";

const NEAR_PX = 160;

export class Pane {
  #id = null;
  #answer = null;
  #isStopped = false;

  constructor(element, connection, changed) {
    this.element = element;
    this.connection = connection;
    this.changed = changed;
    this.messages = [];
    this.log = element.querySelector("[data-log]");
    this.select = element.querySelector("select");
  }

  get isRunning() {
    return this.#answer !== null;
  }

  get model() {
    return this.select.value;
  }

  // The request that follows what was said; `asked` is what is said now.
  body(system, settings, asked) {
    const messages = [...(system ? [{ role: "system", content: system }] : []), ...this.messages, ...asked];
    return { model: this.model, messages, ...settings, stream: true };
  }

  async run(system, settings, asked) {
    const body = this.body(system, settings, asked);
    for (const message of asked) this.#said(message);
    const answer = new Answer(this.log, pricesOf(this.select.selectedOptions[0]));
    answer.changed = () => this.#follow();
    this.#answer = answer;
    this.#isStopped = false;
    this.changed();
    this.#follow(true);
    try {
      this.#id = await this.connection.send(body, (frame) => this.#take(answer, frame, asked));
      answer.meter.sentAt = performance.now();
      if (this.#isStopped) this.connection.cancel(this.#id);
    } catch (error) {
      answer.fail({ message: error.message });
      this.#over();
    }
  }

  stop() {
    this.#isStopped = true;
    if (this.#id) this.connection.cancel(this.#id);
  }

  clear() {
    if (this.#answer) this.#answer.isForgotten = true;
    this.messages = [];
    this.log.replaceChildren();
    this.element.querySelector("[data-nothing]").hidden = false;
  }

  #take(answer, frame, asked) {
    answer.take(frame);
    if (!answer.isOver) return;
    // Only what was answered is said again with the next message.
    if (frame.type === "done" && !answer.isForgotten && (answer.text || answer.calls.length)) {
      const calls = answer.calls.length ? { tool_calls: answer.calls } : {};
      this.messages.push(...asked, { role: "assistant", content: answer.text || null, ...calls });
      if (answer.isWhole && answer.calls.length) this.#askForResults(answer);
    }
    this.#over();
  }

  #over() {
    this.#answer = this.#id = null;
    this.changed();
  }

  #said(message) {
    this.element.querySelector("[data-nothing]").hidden = true;
    const said = copy("play-said");
    said.querySelector("[data-who]").textContent = message.role === "tool" ? "Result of the tool" : "You";
    said.querySelector("[data-text]").textContent = message.content;
    this.log.append(said);
  }

  #askForResults(answer) {
    const form = copy("play-results");
    const fields = answer.calls.map((call) => {
      const field = copy("play-result");
      field.querySelector("[data-name]").textContent = call.function.name;
      return field;
    });
    form.querySelector("[data-fields]").append(...fields);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const results = answer.calls.map((call, place) => ({ role: "tool", tool_call_id: call.id, content: fields[place].querySelector("textarea").value }));
      if (this.goOn?.(this, results)) form.remove();
    });
    this.log.append(form);
    this.#follow(true);
  }

  // The end of the answer stays in sight for who has not gone back to read.
  #follow(always = false) {
    const { log } = this;
    const away = log.scrollHeight - log.scrollTop - log.clientHeight;
    if (always || away < NEAR_PX) log.scrollTop = log.scrollHeight;
  }
}
