// One websocket for all requests of the page, opened when the first is sent. Each is sent once: what
// a lost connection cut off is told, and stays cut off; the next one takes a new ticket.
const PATH = "/ws/v1/stream";

export class Connection {
  #socket = null;
  #opening = null;
  #open = new Map();
  #sent = 0;

  // `ticket` resolves to a ticket's text; `tell` hears "closed", "opening", "open" or "lost".
  constructor({ ticket, tell, problem }) {
    this.ticket = ticket;
    this.tell = tell;
    this.problem = problem;
  }

  // Resolves to the request's name once it was sent. Rejects where nothing was.
  async send(body, listener) {
    const socket = await this.#opened();
    const id = `r${(this.#sent += 1)}`;
    this.#open.set(id, listener);
    socket.send(JSON.stringify({ type: "request", id, api: "chat.completions", body }));
    return id;
  }

  cancel(id) {
    if (this.#open.has(id)) this.#socket?.send(JSON.stringify({ type: "cancel", id }));
  }

  close() {
    this.#socket?.close();
  }

  #opened() {
    if (this.#socket?.readyState === WebSocket.OPEN) return Promise.resolve(this.#socket);
    this.#opening ??= this.#connect().finally(() => {
      this.#opening = null;
    });
    return this.#opening;
  }

  async #connect() {
    this.tell("opening");
    try {
      const address = new URL(PATH, location.href);
      address.protocol = location.protocol.replace("http", "ws");
      address.search = new URLSearchParams({ session_ticket: await this.ticket() });
      const socket = new WebSocket(address);
      await new Promise((resolve, reject) => {
        socket.addEventListener("open", resolve);
        socket.addEventListener("close", () => reject(new Error("The connection could not be opened. Nothing was sent; try again.")));
      });
      socket.addEventListener("message", (event) => this.#take(JSON.parse(event.data)));
      socket.addEventListener("close", () => this.#lost(socket));
      this.#socket = socket;
      this.tell("open");
      return socket;
    } catch (error) {
      this.tell("closed");
      throw error;
    }
  }

  #take(frame) {
    if (frame.id === null) {
      this.problem(frame.error);
      return;
    }
    const listener = this.#open.get(frame.id);
    if (!listener) return;
    if (frame.type === "done" || frame.type === "error") this.#open.delete(frame.id);
    listener(frame);
  }

  #lost(socket) {
    if (socket !== this.#socket) return;
    this.#socket = null;
    const cut = [...this.#open.values()];
    this.#open.clear();
    this.tell(cut.length ? "lost" : "closed");
    for (const listener of cut) listener({ type: "cut" });
  }
}

// Asks for a ticket with the form's token. Rejects with the server's own words.
export async function ticketFrom(address, form) {
  const body = new URLSearchParams({ project: form.elements.project.value });
  const headers = { Accept: "application/json", "X-CSRFToken": form.elements.csrfmiddlewaretoken.value };
  const response = await fetch(address, { method: "POST", headers, body }).catch(() => null);
  if (!response) throw new Error("No connection to the server. Nothing was sent; try again.");
  if (response.redirected) throw new Error("You are signed out. Reload the page and sign in.");
  const told = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(told.message ?? `The server answered ${response.status}. Reload the page and try again.`);
  return told.ticket;
}
