"""Stream an answer over Penstock's websocket. Needs: pip install websockets"""

import asyncio
import json
import os

from websockets.asyncio.client import connect

ADDRESS = os.environ["PENSTOCK_WEBSOCKET"]
KEY = os.environ["PENSTOCK_API_KEY"]
REQUEST = {
    "type": "request",
    "id": "first",
    "api": "chat.completions",
    "body": {
        "model": os.environ["PENSTOCK_MODEL"],
        "messages": [{"role": "user", "content": "What is Penstock?"}],
        "stream": True,
    },
}


async def main() -> None:
    async with connect(ADDRESS, additional_headers={"Authorization": f"Bearer {KEY}"}) as socket:
        await socket.send(json.dumps(REQUEST))
        async for message in socket:
            frame = json.loads(message)
            if frame["type"] == "chunk":
                for choice in frame["data"]["choices"]:
                    print(choice["delta"].get("content") or "", end="", flush=True)
            elif frame["type"] == "done":
                print(f"\n{frame['finish_reason']}, {frame['usage']['total_tokens']} tokens")
                return
            elif frame["type"] == "error":
                raise SystemExit(frame["error"]["message"])


asyncio.run(main())
