// mcp.mjs … SERVER: an MCP server that talks over its standard streams, called
// by the SDK's client: playwright (@playwright/mcp) or devtools
// (chrome-devtools-mcp). It is told nothing of the browser's end.
import { fileURLToPath } from 'node:url';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { check, httpURL, loses, more, site } from './client.mjs';

const servers = {
  playwright: {
    argv: ['@playwright/mcp/cli.js', '--cdp-endpoint', httpURL],
    async load(url) {
      await call('browser_tabs', { action: 'new' }); // the first one may be another client's
      return /^- Page Title: (.*)$/m.exec(await call('browser_navigate', { url }))?.[1];
    },
  },
  devtools: {
    argv: ['chrome-devtools-mcp/build/src/bin/chrome-devtools-mcp.js', '--browserUrl', httpURL, '--no-usage-statistics', '--no-performance-crux'],
    async load(url) {
      const pageId = Number(/^(\d+): .* \[selected\]$/m.exec(await call('new_page', { url }))?.[1]);
      const title = await call('evaluate_script', { pageId, function: '() => document.title' });
      return JSON.parse(/^```json\n(.*)\n```$/ms.exec(title)?.[1] ?? 'null');
    },
  },
};

async function call(name, args) {
  const r = await client.callTool({ name, arguments: args }, undefined, { timeout: 100_000 });
  const text = r.content.map((c) => c.text).join('\n');
  if (r.isError) throw new Error(`${name}: ${text}`);
  return text;
}

const [name] = more;
const { argv: [bin, ...args], load } = servers[name];
const client = new Client({ name: 'btools', version: '0' });
await client.connect(new StdioClientTransport({
  command: process.execPath,
  args: [fileURLToPath(new URL(`node_modules/${bin}`, import.meta.url)), ...args],
  env: { ...process.env, CHROME_DEVTOOLS_MCP_NO_UPDATE_CHECKS: '1' },
}));
const page = async () => check(await load(`${site}/mcp/${name}`), `/mcp/${name}`);
await page();
while (await loses()) {
  // The server may have its browser's end still to notice when the next call
  // comes. That call fails then, once; the one after it connects.
  await page().catch(page);
}
await client.close();
console.log('done');
