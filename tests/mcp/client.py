"""Lists and calls everything that ingero-mcp has, with the official Python client, and prints what came as one JSON object.

    client.py MODE CALLS stdio COMMAND [ARGUMENT...]
    client.py MODE CALLS http URL [TOKEN]

MODE is a revision of the protocol, "auto" or "legacy"; CALLS is a JSON list of [tool, arguments].
"""

import asyncio
import json
import sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client


async def ask(client: Client, calls: list) -> dict:
    tools = (await client.list_tools()).tools
    results = []
    for name, arguments in calls:
        # The client itself checks structured content against the tool's output schema.
        result = await client.call_tool(name, arguments)
        text = result.content[0].text
        results.append({
            "tool": name,
            "error": bool(result.is_error),
            "agrees": result.is_error or json.loads(text) == result.structured_content,
            "content": result.structured_content,
        })
    prompt = await client.get_prompt("investigate", {"question": "why?"})
    resources = (await client.list_resources()).resources
    read = [await client.read_resource(resource.uri) for resource in resources]
    return {
        "version": client.protocol_version,
        "tools": [tool.name for tool in tools],
        "results": results,
        "prompt_chars": len(prompt.messages[0].content.text),
        "resources": {str(r.uri): len(c.contents[0].text) for r, c in zip(resources, read)},
    }


async def main() -> None:
    mode, calls, how, where, *rest = sys.argv[1:]
    if how == "stdio":
        server = StdioServerParameters(command=where, args=rest)
    else:
        headers = {"Authorization": f"Bearer {rest[0]}"} if rest else {}
        server = streamable_http_client(where, http_client=httpx2.AsyncClient(headers=headers))
    async with Client(server, mode=mode) as client:
        print(json.dumps(await ask(client, json.loads(calls))))


asyncio.run(main())
