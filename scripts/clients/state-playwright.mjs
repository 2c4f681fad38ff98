// state-playwright.mjs HTTP_URL WS_URL SITE: a person logs in in one session of
// bproxy --isolate, the login is saved, and other sessions start with it. The
// states are the same as Playwright's own.
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { deepStrictEqual, strictEqual } from 'node:assert';
import { chromium } from 'playwright-core';

const [url, , site] = process.argv.slice(2);
const bproxy = (...args) => execFileSync('bproxy', args, { encoding: 'utf8' });

// shown is what a page of the site shows: what its server and its first script
// have found, and what its database holds.
async function shown(context) {
  const page = context.pages()[0] ?? await context.newPage();
  await page.goto(site);
  await page.waitForFunction(() => document.title.startsWith('shows'));
  return page.title();
}

async function inSession(name, use) {
  const browser = await chromium.connectOverCDP(`${url}/session/${name}`);
  try {
    return await use(browser.contexts()[0], browser);
  } finally {
    await browser.close();
  }
}

const sorted = ({ cookies, origins }) => ({
  cookies: cookies.sort((a, b) => a.name.localeCompare(b.name)),
  origins: origins.sort((a, b) => a.origin.localeCompare(b.origin))
    .map((o) => ({ ...o, localStorage: o.localStorage.sort((a, b) => a.name.localeCompare(b.name)) })),
});

const own = await inSession('one', async (context) => {
  strictEqual(await shown(context), 'shows nobody, null, nothing');
  await context.pages()[0].goto(`${site}/login`);
  await context.pages()[0].waitForFunction(() => document.title === 'logged in');
  strictEqual(await shown(context), 'shows ann, s3cret-token, s3cret-key');
  return context.storageState({ indexedDB: true });
});
bproxy('state', 'save', 'login', '--from', 'one');
bproxy('session', 'new', 'two', '--state', 'login');
await inSession('two', async (context) => {
  strictEqual(await shown(context), 'shows ann, s3cret-token, s3cret-key');
});
const exported = JSON.parse(bproxy('state', 'export', 'login'));
// Members of our own, which Playwright ignores.
const known = ({ priority, sourcePort, sourceScheme, ...cookie }) => cookie;
deepStrictEqual(sorted({ ...exported, cookies: exported.cookies.map(known) }), sorted(own));
writeFileSync('own.json', JSON.stringify(own));
bproxy('state', 'import', 'own.json');
bproxy('session', 'new', 'three', '--state', 'own');
await inSession('three', async (context, browser) => {
  strictEqual(await shown(context), 'shows ann, s3cret-token, s3cret-key');
  const fresh = await browser.newContext();
  strictEqual(await shown(fresh), 'shows nobody, null, nothing');
  const restored = await browser.newContext({ storageState: exported });
  strictEqual(await shown(restored), 'shows ann, s3cret-token, s3cret-key');
});
console.log('done');
