// shared.mjs BPOOL CHROME SITE METRICS: how long a client needs from nothing to
// a loaded page and back, alone and ten at once: on a lease of bpool's, whose 12
// instances share a Chrome, and, by turns, in a context of a Chrome that
// Playwright holds. Each does it several times in a row, so that bpool's pays for
// the sessions that it uses up; the other's turn comes when those are made. It
// prints the two quotients of the medians, and the medians.
import { chromium } from 'playwright-core';
import { execFile } from 'node:child_process';
import { performance } from 'node:perf_hooks';
import { promisify } from 'node:util';

const [bpool, chrome, site, metrics] = process.argv.slice(2);
const run = promisify(execFile);
const held = await chromium.launch({ executablePath: chrome, headless: true, args: ['--no-sandbox', '--disable-background-networking'] });

async function leased() {
  const lease = JSON.parse((await run(bpool, ['lease'])).stdout);
  const browser = await chromium.connectOverCDP(lease.instance.http_url);
  const page = browser.contexts()[0].pages()[0];
  await page.goto(site);
  await browser.close();
  await run(bpool, ['release', lease.lease.id]);
}

async function own() {
  const context = await held.newContext();
  const page = await context.newPage();
  await page.goto(site);
  await context.close();
}

async function took(n, cycle) {
  const began = performance.now();
  await Promise.all(Array.from({ length: n }, cycle));
  return performance.now() - began;
}

const median = (list) => list.sort((a, b) => a - b)[list.length >> 1];

// settled waits until each instance has a session ready again.
async function settled() {
  while (!(await (await fetch(metrics)).text()).includes('bpool_sessions{pool="A",state="spare"} 12\n')) {
    await new Promise((done) => setTimeout(done, 50));
  }
}

async function compare(n, turns, inARow) {
  const ours = [], theirs = [];
  await took(n, leased);
  await took(n, own);
  for (let i = 0; i < turns; i++) {
    await settled();
    for (let j = 0; j < inARow; j++) ours.push(await took(n, leased));
    await settled();
    for (let j = 0; j < inARow; j++) theirs.push(await took(n, own));
  }
  return [median(ours), median(theirs)];
}

const [a, b] = await compare(1, 4, 5);
const [c, d] = await compare(10, 3, 3);
console.log((a / b).toFixed(2), a.toFixed(0), b.toFixed(0), (c / d).toFixed(2), c.toFixed(0), d.toFixed(0));
await held.close();
