// private.mjs playwright|puppeteer HTTP_URL SITE: a client goes on after a person was private, who has navigated its page,
// opened a tab and closed another one. It is told by lines of its standard input what has happened.
import { createInterface } from 'node:readline';
const [which, url, site] = process.argv.slice(2);
setTimeout(() => {
  console.error(`no end after 100 s; the last that was right: ${last}`);
  process.exit(1);
}, 100_000).unref();
let last = '';

const open = {
  playwright: async () => {
    const { chromium } = await import('playwright-core');
    const browser = await chromium.connectOverCDP(url);
    return [browser, browser.contexts()[0]];
  },
  puppeteer: async () => {
    const { default: puppeteer } = await import('puppeteer-core');
    const browser = await puppeteer.connect({ browserURL: url, defaultViewport: null });
    return [browser, browser];
  },
};
function check(ok, what) {
  if (!ok) throw new Error(what);
  last = what;
}
const [browser, context] = await open[which]();
const [page] = await context.pages();
await page.goto(site);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
console.log('ready');
await lines.next(); // the person is private
const refused = await page.goto(site).then(() => '', (e) => e.message); // of a script Playwright makes an error of its own
check(refused.includes('in private; nothing was done'), `a navigation in private: ${refused}`);
console.log('refused');
await lines.next(); // the session is given back
for (let n = 0, at; at !== '/inside'; n++) { // what it is told comes as after any navigation
  check(n < 100, `the page is at ${at}`);
  at = await page.evaluate(() => location.pathname).catch((e) => e.message);
}
check(page.url() === site, `the page is at ${page.url()}`);
for (let n = 0; (await context.pages()).length !== 2; n++) {
  check(n < 100, `there are ${(await context.pages()).length} pages`);
  await new Promise((done) => setTimeout(done, 50));
}
const tab = (await context.pages()).find((p) => p !== page);
check(await tab.title() === 'Tab', 'the tab has another title');
await tab.goto(`${site}again`);
check(tab.url() === `${site}again`, 'the tab has another address');
const frame = page.frames().find((f) => f !== page.mainFrame());
check(await frame.evaluate(() => document.title) === 'Frame', 'the frame has another title');
await page.click('#go');
check(await page.evaluate(() => clicked) === 1, 'the click has not arrived');
await page.goto(`${site}last`);
check(page.url() === `${site}last` && await page.title() === 'Shop', 'the page goes nowhere');
const third = await context.newPage();
await third.goto(`${site}third`);
await third.close();
console.log('done');
await (browser.disconnect?.() ?? browser.close());
