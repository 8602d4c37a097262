// Lists and calls everything that ingero-mcp has, with the official TypeScript client, and prints what came as one JSON object.
//
//     node client.mjs CALLS stdio COMMAND [ARGUMENT...]
//     node client.mjs CALLS http URL [TOKEN]
//
// CALLS is a JSON list of [tool, arguments]. The packages are looked for in the directory that this file lies in.

import { isDeepStrictEqual } from "node:util";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [calls, how, where, ...rest] = process.argv.slice(2);
const transport =
  how === "stdio"
    ? new StdioClientTransport({ command: where, args: rest })
    : new StreamableHTTPClientTransport(new URL(where), {
        requestInit: { headers: rest.length ? { Authorization: `Bearer ${rest[0]}` } : {} },
      });
const client = new Client({ name: "test", version: "1" });
await client.connect(transport);

// Having listed the tools, the client itself checks structured content against their output schemas.
const { tools } = await client.listTools();
const results = [];
for (const [name, args] of JSON.parse(calls)) {
  const result = await client.callTool({ name, arguments: args });
  results.push({
    tool: name,
    error: Boolean(result.isError),
    agrees: result.isError || isDeepStrictEqual(JSON.parse(result.content[0].text), result.structuredContent),
    content: result.structuredContent ?? null,
  });
}
const prompt = await client.getPrompt({ name: "investigate", arguments: { question: "why?" } });
const { resources } = await client.listResources();
const read = {};
for (const { uri } of resources) read[uri] = (await client.readResource({ uri })).contents[0].text.length;
console.log(
  JSON.stringify({
    version: transport.protocolVersion ?? null,
    tools: tools.map((tool) => tool.name),
    results,
    prompt_chars: prompt.messages[0].content.text.length,
    resources: read,
  }),
);
await client.close();
