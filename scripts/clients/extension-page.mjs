// extension-page.mjs WS HUB CODE DIR: the page behind the extension's button, as
// its user sees it: pairing with a wrong and the right code, sharing a tab with
// a client, and disconnecting.
import { chromium } from 'playwright-core';

const [chrome, hub, code, dir] = process.argv.slice(2);
const ID = 'jmmjblambjkbkcajamfnaknffedbcnbb';
setTimeout(() => { throw new Error('no end'); }, 120_000).unref();

const browser = await chromium.connectOverCDP(chrome);
const [user] = browser.contexts();
const shared = user.pages()[0];
await shared.goto(`${hub}/json/version`).catch(() => {});
await shared.goto('data:text/html,<title>mine</title>');

const page = await user.newPage();
await page.goto(`chrome-extension://${ID}/page.html`);
const connect = page.locator('#pair button');
const shows = (text) => page.locator('#state', { hasText: text }).waitFor();
await shows('not paired');
await page.locator('input[name=code]').fill('AAAAA-BBBBB-CCCCC-DDDDD');
await connect.click();
await page.locator('#why', { hasText: 'pairing code' }).waitFor();
await page.locator('input[name=code]').fill('short');
await connect.click();
await page.locator('#why', { hasText: 'prints a code' }).waitFor();
await page.screenshot({ path: `${dir}/pairing.png` });
await page.locator('input[name=code]').fill(code.toLowerCase());
await connect.click();
await shows('connected');
await page.screenshot({ path: `${dir}/connected.png` });

// The page is in a tab of its own here, so the tab in front is itself: the
// worker is asked as the page would ask it.
const ask = (action) => page.evaluate(async ([action, title]) => {
  const [tab] = await chrome.tabs.query({ title });
  return chrome.runtime.sendMessage({ action, tabId: tab?.id });
}, [action, 'mine']);
const client = await chromium.connectOverCDP(hub);
const [mine] = client.contexts();
const came = mine.waitForEvent('page');
if (!(await ask('share')).shared) throw new Error('the tab is not shared');
const tab = await came;
if ((await tab.title()) !== 'mine') throw new Error(`the client got the tab ${await tab.title()}`);
await tab.evaluate(() => { document.title = 'changed'; });
await shared.waitForFunction(() => document.title === 'changed');
await tab.evaluate(() => { document.title = 'mine'; });
await shared.waitForFunction(() => document.title === 'mine');
// What a page of the user's opens is the user's, too.
const [popup] = await Promise.all([mine.waitForEvent('page'), tab.evaluate(() => void window.open('about:blank#popup'))]);
if (!popup.url().endsWith('#popup')) throw new Error(`the client got the pop-up ${popup.url()}`);
const gone = tab.waitForEvent('close');
await ask('unshare');
await gone;
if ((await shared.title()) !== 'mine') throw new Error('the tab of the user is gone');

const lost = new Promise((done) => client.once('disconnected', done));
await page.getByRole('button', { name: 'Disconnect' }).click();
await lost;
await shows('disconnected');
if (!user.pages().some((p) => p.url().endsWith('#popup'))) throw new Error('the pop-up of the user is gone');
await page.locator('#resume').click();
await shows('connected');
await browser.close();
console.log('done');
