// Stream an answer over Penstock's websocket, in a browser. The ticket comes from a server of yours,
// which asks POST /v1/stream/tickets for it: an API key has no place in a page.
export function stream(address, ticket, body, onText) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(`${address}?ticket=${encodeURIComponent(ticket)}`);
    socket.onopen = () => {
      const request = { type: "request", id: "first", api: "chat.completions", body };
      socket.send(JSON.stringify({ ...request, body: { ...body, stream: true } }));
    };
    socket.onmessage = (message) => {
      const frame = JSON.parse(message.data);
      if (frame.type === "chunk") {
        for (const choice of frame.data.choices) onText(choice.delta.content ?? "");
      } else if (frame.type === "done") {
        resolve(frame);
        socket.close();
      } else if (frame.type === "error") {
        reject(new Error(frame.error.message));
        socket.close();
      }
    };
    socket.onclose = (event) => reject(new Error(`The connection closed: ${event.code}.`));
  });
}
