// takeover.mjs playwright|puppeteer HTTP_URL N: clicks a button N times and types N keys, each by its turn, while a person
// takes control and gives it back. What the page has seen must be what was done, in its order.
const [which, url, n] = process.argv.slice(2);
setTimeout(() => {
  console.error('no end after 150 s');
  process.exit(1);
}, 150_000).unref();

const open = {
  playwright: async () => {
    const { chromium } = await import('playwright-core');
    const browser = await chromium.connectOverCDP(url);
    return [browser, browser.contexts()[0].pages()[0]];
  },
  puppeteer: async () => {
    const { default: puppeteer } = await import('puppeteer-core');
    const browser = await puppeteer.connect({ browserURL: url, defaultViewport: null });
    return [browser, (await browser.pages())[0]];
  },
};
const [browser, page] = await open[which]();
await page.setContent('<button>0</button><input>');
await page.evaluate(() => {
  window.log = [];
  const button = document.querySelector('button');
  button.onclick = (e) => e.isTrusted && log.push('click ' + button.textContent);
  document.querySelector('input').onkeydown = (e) => e.isTrusted && log.push('key ' + e.key);
});
console.log('ready');
const want = [];
for (let i = 0; i < n; i++) {
  await page.evaluate((i) => { document.querySelector('button').textContent = i; }, i);
  await page.click('button');
  await page.focus('input');
  const key = String.fromCharCode(97 + (i % 26));
  await page.keyboard.press(key);
  want.push('click ' + i, 'key ' + key);
}
const got = await page.evaluate(() => log);
if (got.join() !== want.join()) {
  const at = got.findIndex((g, i) => g !== want[i]);
  throw new Error(`of ${want.length} the page has seen ${got.length}; from ${at}: ${got.slice(at, at + 5)}, not ${want.slice(at, at + 5)}`);
}
console.log('done');
await (browser.disconnect?.() ?? browser.close());
