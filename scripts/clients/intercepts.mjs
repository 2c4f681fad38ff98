// intercepts.mjs playwright|puppeteer HTTP_URL: a client answers choosers of files, drags and touches on a page, before and
// after a person does. At the take-over it drags something. A line of its standard input says that the session is given
// back.
import { createInterface } from 'node:readline';
const [which, url] = process.argv.slice(2);
setTimeout(() => {
  console.error('no end after 100 s');
  process.exit(1);
}, 100_000).unref();

let choosers = 0;
const until = async (what, is) => {
  for (let n = 0; !await is(); n++) {
    if (n > 500) throw new Error(`${what}; ${choosers} choosers, ${await page.evaluate(() => log.join())}`);
    await new Promise((done) => setTimeout(done, 10));
  }
};
const clients = {
  playwright: async () => {
    const { chromium } = await import('playwright-core');
    const browser = await chromium.connectOverCDP(url);
    const page = browser.contexts()[0].pages()[0];
    page.on('filechooser', (chooser) => {
      choosers++;
      chooser.setFiles({ name: 'agent.txt', mimeType: 'text/plain', buffer: Buffer.from('agent') });
    });
    return {
      browser, page,
      cdp: await page.context().newCDPSession(page),
      choose: async () => {
        await page.click('#files');
        await until('no file', () => page.evaluate(() => document.querySelector('#files').files[0]?.name === 'agent.txt'));
      },
      drop: () => page.dragAndDrop('#item', '#cart'),
      drag: async () => {
        await page.hover('#item');
        await page.mouse.down();
        await page.hover('#cart', { force: true });
      },
    };
  },
  puppeteer: async () => {
    const { default: puppeteer } = await import('puppeteer-core');
    const browser = await puppeteer.connect({ browserURL: url, defaultViewport: null });
    const [page] = await browser.pages();
    const answer = async () => {
      const chooser = await page.waitForFileChooser({ timeout: 0 });
      choosers++;
      answer().catch(() => {}); // the end
      await chooser.cancel();
    };
    answer();
    await page.setDragInterception(true);
    const places = () => Promise.all(['#item', '#cart'].map(async (s) => (await page.$(s)).clickablePoint()));
    return {
      browser, page,
      cdp: await page.createCDPSession(),
      choose: () => page.click('#files'),
      drop: async () => page.mouse.dragAndDrop(...await places()),
      drag: async () => page.mouse.drag(...await places()),
    };
  },
};
const { browser, page, cdp, choose, drop, drag } = await clients[which]();

async function use(times) {
  await page.evaluate(() => { log = []; });
  const sees = (event) => until(`no ${event}`, () => page.evaluate((e) => log.includes(e), event));
  await choose();
  await until(`not ${times} choosers`, () => choosers === times);
  await drop();
  await sees('drop an item');
  await cdp.send('Input.dispatchTouchEvent', { type: 'touchStart', touchPoints: [{ x: 450, y: 50 }] });
  await cdp.send('Input.dispatchTouchEvent', { type: 'touchEnd', touchPoints: [] });
  await sees('touchend item');
}
await use(1);
await new Promise((done) => setTimeout(done, 600)); // a press so soon were the second one of a double click
await drag();
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
console.log('ready');
await lines.next();
await page.mouse.up();
await use(2);
console.log('done');
await (browser.disconnect?.() ?? browser.close());
process.exit(0);
