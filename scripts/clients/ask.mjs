// ask.mjs URL BMCP: the SDK's client as a host that shows addresses to a person. It has bmcp ask one in the session at a
// URL, fetches the address that it is to show, and prints what has become of the ask.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { ElicitRequestSchema, ElicitationCompleteNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

const [url, command] = process.argv.slice(2);
const client = new Client({ name: 'btools', version: '0' }, { capabilities: { elicitation: { url: {}, form: {} } } });
let asked, complete;
const completed = new Promise((resolve) => { complete = resolve; });
client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
  asked = params;
  const page = await fetch(params.url);
  if (!page.ok || !(await page.text()).includes('<!doctype html>')) throw new Error(`${params.url}: ${page.status}`);
  return { action: 'accept' };
});
client.setNotificationHandler(ElicitationCompleteNotificationSchema, ({ params }) => complete(params.elicitationId));
await client.connect(new StdioClientTransport({ command, args: ['--cdp', url], env: process.env }));
await client.listTools(); // which compiles the schema of the result
let result = await client.callTool({ name: 'browser_ask_human', arguments: { instructions: 'Log in to shop' } });
if (result.structuredContent.outcome === 'waiting') {
  result = await client.callTool({ name: 'browser_ask_human', arguments: { ask_id: result.structuredContent.ask_id } });
}
console.log(asked.mode, asked.message, asked.elicitationId === await completed, result.structuredContent.outcome, result.structuredContent.note);
await client.close();
