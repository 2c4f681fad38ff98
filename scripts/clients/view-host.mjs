// view-host.mjs AGENT VIEWER BMCP: a host of MCP with MCP Apps, in a browser: its page, which the session at VIEWER shows,
// has the app of browser_view on bmcp's session at AGENT by AppBridge of @modelcontextprotocol/ext-apps.
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { chromium } from 'playwright-core';

const [agent, viewer, command] = process.argv.slice(2);
setTimeout(() => {
  console.error('no end after 100 s');
  process.exit(1);
}, 100_000).unref();
const client = new Client({ name: 'btools', version: '0' }, {
  capabilities: { extensions: { 'io.modelcontextprotocol/ui': { mimeTypes: ['text/html;profile=mcp-app'] } } },
});
await client.connect(new StdioClientTransport({ command, args: ['--cdp', agent], env: process.env }));
const tool = (name, args = {}) => client.callTool({ name, arguments: args });
const paint = (color) => tool('browser_navigate', { url: `data:text/html,<title>${color}</title><body style="background:${color}">` });
const { tools } = await client.listTools();
const { contents: [{ text: html }] } = await client.readResource({ uri: tools.find((t) => t.name === 'browser_view')._meta.ui.resourceUri });
await paint('red');

const modules = {
  '@modelcontextprotocol/client': 'dist/index.mjs', '@modelcontextprotocol/client/_shims': 'dist/shimsBrowser.mjs',
  '@modelcontextprotocol/core': 'dist/index.mjs', '@modelcontextprotocol/core/internal': 'dist/internal.mjs',
  '@modelcontextprotocol/ext-apps': 'dist/src/app-bridge.js', eventsource: 'dist/index.js',
  'eventsource-parser/stream': 'dist/stream.js', 'eventsource-parser': 'dist/index.js',
  'pkce-challenge': 'dist/index.browser.js', 'zod/v4': 'v4/index.js',
};
const imports = Object.fromEntries(Object.entries(modules).map(([name, file]) => {
  const parts = name.split('/');
  return [name, `/node_modules/${parts.slice(0, name.startsWith('@') ? 2 : 1).join('/')}/${file}`];
}));
const page = `<!doctype html><title>host</title><script type="importmap">${JSON.stringify({ imports })}</script><script type="module">
import { AppBridge, PostMessageTransport } from '@modelcontextprotocol/ext-apps';
const query = new URLSearchParams(location.search);
window.opened = []; window.calls = []; window.sent = 0; window.bridges = [];
addEventListener('message', () => { sent++; });
for (let i = 0; i < Number(query.get('apps')); i++) {
  const frame = document.createElement('iframe');
  Object.assign(frame, { width: 500, height: 400 });
  frame.sandbox = 'allow-scripts';
  document.body.append(frame);
  if (query.has('answers')) {
    const bridge = new AppBridge(null, { name: 'host', version: '1' }, { openLinks: {}, serverTools: {} });
    bridge.oncalltool = async (params) => {
      const began = performance.now();
      const result = await (await fetch('/call', { method: 'POST', body: JSON.stringify(params) })).json();
      calls.push({ app: i, took: performance.now() - began });
      return result;
    };
    bridge.onopenlink = async ({ url }) => { opened.push(url); return {}; };
    bridge.oninitialized = () => bridge.sendToolInput({ arguments: {} });
    await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
    bridges.push(bridge);
  }
  frame.src = '/app';
}
</script>`;
const types = { js: 'text/javascript', mjs: 'text/javascript' };
const server = createServer(async (req, res) => {
  const { pathname } = new URL(req.url, 'http://x');
  if (pathname === '/call') {
    let body = '';
    for await (const part of req) body += part;
    res.end(JSON.stringify(await client.callTool(JSON.parse(body))));
  } else if (pathname.startsWith('/node_modules/')) {
    const file = await readFile(new URL(`.${pathname}`, import.meta.url)).catch(() => null);
    res.writeHead(file ? 200 : 404, { 'Content-Type': types[pathname.split('.').pop()] ?? 'text/plain' }).end(file ?? '');
  } else if (pathname === '/app') { // as hosts restrict an app that says nothing of it
    res.writeHead(200, {
      'Content-Type': 'text/html',
      'Content-Security-Policy': "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; media-src 'self' data:; connect-src 'none'",
    }).end(html);
  } else {
    res.writeHead(200, { 'Content-Type': 'text/html' }).end(page);
  }
});
await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
const base = `http://127.0.0.1:${server.address().port}/`;

const browser = await chromium.connectOverCDP(viewer);
const tab = browser.contexts()[0].pages()[0] ?? await browser.contexts()[0].newPage();
const faults = [];
tab.on('console', (m) => m.type() === 'error' && !m.text().includes('404') && faults.push(m.text()));
tab.on('pageerror', (err) => faults.push(String(err)));

// shows waits until the picture of an app has a color in its middle.
async function shows(app, color) {
  await tab.frames().filter((f) => f.url().endsWith('/app'))[app].waitForFunction((want) => {
    const img = document.querySelector('img');
    if (img.hidden || !img.naturalWidth) return false;
    const canvas = new OffscreenCanvas(1, 1).getContext('2d');
    canvas.drawImage(img, img.naturalWidth / 2, img.naturalHeight / 2, 1, 1, 0, 0, 1, 1);
    const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
    return (r > 200 && b < 50 ? 'red' : b > 200 && r < 50 ? 'blue' : `${r},${g},${b}`) === want;
  }, color);
}

await tab.goto(`${base}?apps=2&answers`); // shown twice
await Promise.all([shows(0, 'red'), shows(1, 'red')]);
await paint('blue');
await Promise.all([shows(0, 'blue'), shows(1, 'blue')]);
const apps = tab.frames().filter((f) => f.url().endsWith('/app'));
await apps[1].click('#open');
await tab.waitForFunction(() => opened.length === 1);
const [address] = await tab.evaluate(() => opened);
if (!/^http:\/\/127\.0\.0\.1:\d+\/#\/agent$/.test(address)) throw new Error(`it opens ${address}`);
await tab.waitForFunction(() => calls.filter((c) => c.app === 0).length >= 5);
const took = await tab.evaluate(() => calls.map((c) => c.took).sort((a, b) => a - b));
await tab.evaluate(() => bridges[0].teardownResource({})); // one ends, the other goes on
const [ended, other] = await tab.evaluate(() => [0, 1].map((app) => calls.filter((c) => c.app === app).length));
await tab.waitForFunction((n) => calls.filter((c) => c.app === 1).length >= n + 2, other);
const later = await tab.evaluate(() => calls.filter((c) => c.app === 0).length);
if (later > ended + 1) throw new Error(`the app that has ended has called ${later - ended} times`);

await tab.clock.install();
await tab.goto(`${base}?apps=1`); // a host that never answers
const silent = () => tab.frames().find((f) => f.url().endsWith('/app'));
await tab.waitForFunction(() => window.sent === 1);
await tab.clock.fastForward(11_000);
await silent().waitForFunction(() => document.querySelector('p').textContent.includes('bproxy view shows the browser'));
const sent = await tab.evaluate(() => window.sent);
if (sent !== 1) throw new Error(`it has sent ${sent} messages`);
if (faults.length) throw new Error(faults.join('\n'));
console.log('done', took.length, Math.round(took[took.length >> 1]), Math.round(took.at(-1)));
await browser.close();
await client.close();
server.closeAllConnections();
server.close();
