// host.mjs BMCP ARGS… | URL: the SDK's client as the host of bmcp. It lists
// the tools, loads a page with progress wanted, and answers what a child asks.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ListRootsRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: 'btools', version: '0' }, { capabilities: { roots: {} } });
let asked = 0;
client.setRequestHandler(ListRootsRequestSchema, () => {
  asked++;
  return { roots: [] };
});
await client.connect(command.startsWith('http')
  ? new StreamableHTTPClientTransport(new URL(command))
  : new StdioClientTransport({ command, args, env: process.env }));
let { tools } = await client.listTools(); // which compiles each output schema
while (!tools.some((tool) => tool.name === 'browser_navigate')) { // its child starts slowly
  await new Promise((resolve) => setTimeout(resolve, 100));
  ({ tools } = await client.listTools());
}
const own = await client.callTool({ name: 'coordinator_status', arguments: {} }); // checked against its schema
const page = await client.callTool({ name: 'browser_navigate', arguments: { url: 'data:text/html,<title>host</title>' } }, undefined, { onprogress() {} });
const bulk = await client.callTool({
  name: 'browser_execute_bulk',
  arguments: { commands: [{ tool: 'browser_tabs', args: { action: 'list' }, return_result: true }] },
});
const controller = new AbortController();
const cancelled = client.callTool({ name: 'browser_wait_for', arguments: { time: 20 } }, undefined, { signal: controller.signal });
setTimeout(() => controller.abort('enough'), 200);
const why = await cancelled.then(() => 'answered', String);
await client.ping();
console.log(JSON.stringify({
  server: client.getServerVersion()?.name, tools: tools.length, running: own.structuredContent.running, asked,
  page: page.content[0].text, success: bulk.structuredContent.success, why,
}));
await client.transport.terminateSession?.();
await client.close();
