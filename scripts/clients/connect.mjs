// connect.mjs playwright|puppeteer URL: a WebSocket that is a lease is all that a client needs.
const [which, url] = process.argv.slice(2);
setTimeout(() => {
  console.error('no end after 100 s');
  process.exit(1);
}, 100_000).unref();
let browser, page;
if (which === 'playwright') {
  const { chromium } = await import('playwright-core');
  browser = await chromium.connectOverCDP(url);
  page = await (await browser.newContext()).newPage();
} else {
  const { default: puppeteer } = await import('puppeteer-core');
  browser = await puppeteer.connect({ browserWSEndpoint: url, defaultViewport: null });
  page = await browser.newPage();
}
await page.setContent('<title>leased</title><button onclick="document.title = 1 + 1">add</button>');
await page.click('button');
if ((await page.title()) !== '2') throw new Error(`the title is ${await page.title()}`);
await browser.close();
console.log('done');
