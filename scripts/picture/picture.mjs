// picture.mjs HTTP_URL BPROXY FILE: six agents at work on pages of their own, and a picture of the page that shows them.
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';

const { default: puppeteer } = await import(createRequire(new URL('../clients/', import.meta.url)).resolve('puppeteer-core'));
const [at, bproxy, file] = process.argv.slice(2);

const style = `<style>body { margin: 0; font: 22px/1.4 system-ui, sans-serif; color: #1b1f26 } main { padding: 40px 60px }
  h1 { font-size: 44px; margin: 0 0 24px } header { background: var(--c); color: #fff; padding: 22px 60px; font-weight: 700 }
  .row { display: flex; gap: 24px } .card { flex: 1; border: 1px solid #d8dce2; border-radius: 14px; padding: 26px; min-height: 210px }
  .bar { background: var(--c); border-radius: 8px 8px 0 0; flex: 1; opacity: .8 } input, button { font: inherit; padding: 12px 18px;
  border-radius: 10px; border: 1px solid #b9c0ca; margin: 8px 0; display: block; width: 460px } button { background: var(--c); color: #fff; border: 0 }
  table { width: 100%; border-collapse: collapse } td { padding: 14px; border-top: 1px solid #d8dce2 }</style>`;
const cards = (...all) => `<div class="row">${all.map((t) => `<div class="card"><b>${t}</b></div>`).join('')}</div>`;
const pages = {
  'claude-code-7f3a': ['Checkout – Lindgren Books', '#0b5cc4', '<h1>Checkout</h1><input value="Anna Lind"><input value="Storgatan 7, Lund"><button>Pay 42.50</button>'],
  'codex-19cd': ['Flights to Lisbon', '#11703b', '<h1>Lisbon, 12 – 19 May</h1><table><tr><td>06:40<td>TP 583<td>128 €<tr><td>11:15<td>LH 1166<td>164 €<tr><td>17:50<td>TP 587<td>139 €</table>'],
  'gemini-cli-42b1': ['Nightly build 1841', '#6b3fa0', `<h1>Build 1841</h1><div class="row" style="height: 300px; align-items: end">${[40, 70, 55, 90, 62, 80, 100].map((h) => `<div class="bar" style="height: ${h}%"></div>`).join('')}</div>`],
  'cursor-c0de': ['Issues – editor', '#9a4a00', '<h1>12 open issues</h1><table><tr><td>#311<td>Crash on paste<tr><td>#308<td>Slow start on ARM<tr><td>#297<td>Dark mode flickers</table>'],
  'suite-3': ['Sign in', '#1b1f26', '<h1>Sign in</h1><input placeholder="Email"><input type="password" value="secret-word"><button>Continue</button>'],
  'suite-4': ['Catalogue', '#b3261e', `<h1>Catalogue</h1>${cards('Lamp', 'Chair', 'Table')}<br>${cards('Shelf', 'Stool', 'Rug')}`],
};
const site = createServer((request, answer) => {
  const [title, color, body] = pages[decodeURIComponent(request.url.slice(1))] ?? ['', '', ''];
  answer.setHeader('content-type', 'text/html; charset=utf-8');
  answer.end(`<!doctype html><title>${title}</title>${style}<body style="--c: ${color}"><header>${title}</header><main>${body}</main>`);
}).listen(0, '127.0.0.1');
await once(site, 'listening');
const origin = `http://127.0.0.1:${site.address().port}`;

const agents = {};
for (const name of Object.keys(pages)) {
  const browser = await puppeteer.connect({ browserWSEndpoint: `${at.replace('http', 'ws')}/session/${name}/devtools/browser/x`, defaultViewport: null });
  const [page] = await browser.pages();
  await page.setViewport({ width: 1280, height: 720 });
  await page.goto(`${origin}/${name}`);
  agents[name] = page;
}
const address = execFileSync(bproxy, ['view', '--no-open'], { encoding: 'utf8' }).trim();
const viewer = await puppeteer.launch({ executablePath: process.env.CHROME ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-background-networking'] });
const page = (await viewer.pages())[0];
await page.setViewport({ width: 1180, height: 720 });
await page.goto(address);
await page.waitForFunction(() => document.querySelectorAll('.tile').length === 6 &&
  [...document.querySelectorAll('.tile canvas')].every((c) => c.width > 100) &&
  [...document.querySelectorAll('.title')].every((t) => t.textContent.trim()));
for (let n = 0; n < 30; n++) {
  await agents['claude-code-7f3a'].mouse.click(200 + n, 400);
  await agents['gemini-cli-42b1'].mouse.wheel({ deltaY: 1 });
  await new Promise((done) => setTimeout(done, 60));
}
await page.screenshot({ path: file });
await viewer.close();
site.close();
process.exit();
