// har.mjs: what cmd/har_test.go records and converts. It is called as har.mjs
// playwright|puppeteer HTTP_URL WS_URL SITE WHO, visits a page with everything
// that an archive knows, fetches bodies, and says "done".
import { chromium } from 'playwright-core';
import puppeteer from 'puppeteer-core';

const [library, httpURL, wsURL, site, who] = process.argv.slice(2);
setTimeout(() => {
  console.error(`${who}: no end after 100 s`);
  process.exit(1);
}, 100_000).unref();

const address = `${site}/start?who=${who}&q=a%20b&q=`; // which redirects to /page
const inPage = async (who) => {
  await fetch('/post?' + who, { method: 'POST', body: new URLSearchParams({ name: 'value of ' + who }) });
  await fetch('/image.png?' + who).then((r) => r.arrayBuffer());
  await fetch('/cached.js?' + who).then((r) => r.text());
  await fetch('/cached.js?' + who).then((r) => r.text());
  await fetch('/broken?' + who).then((r) => r.text()).catch(() => {});
  await new Promise((done) => {
    const ws = new WebSocket(location.href.replace('http', 'ws').replace(/page.*/, 'ws?' + who));
    ws.onopen = () => ws.send('hello ' + who);
    ws.onmessage = () => ws.close();
    ws.onclose = done;
  });
};
const wanted = (url) => /page|image|post/.test(url);

if (library === 'playwright') {
  const browser = await chromium.connectOverCDP(wsURL || httpURL);
  const page = await (await browser.newContext()).newPage();
  const bodies = [];
  page.on('response', (r) => { if (wanted(r.url())) bodies.push(r.body()); });
  await page.goto(address);
  await page.evaluate(inPage, who);
  await Promise.all(bodies);
  await page.goto(`${site}/second?${who}`);
  await page.close();
  await browser.close();
} else {
  const browser = await puppeteer.connect(wsURL ? { browserWSEndpoint: wsURL } : { browserURL: httpURL });
  const page = await (await browser.createBrowserContext()).newPage();
  const bodies = [];
  page.on('response', (r) => { if (wanted(r.url())) bodies.push(r.buffer()); });
  await page.goto(address);
  await page.evaluate(inPage, who);
  await Promise.all(bodies);
  await page.goto(`${site}/second?${who}`);
  await page.close();
  await browser.disconnect();
}
console.log('done');
