// downloads-puppeteer.mjs: downloads and uploads of puppeteer-core.
// cmd/downloads_test.go calls it as downloads-puppeteer.mjs WS_URL SITE DIR ROOT.
import puppeteer from 'puppeteer-core';
import { readFileSync } from 'node:fs';

const [wsURL, site, dir, root] = process.argv.slice(2);
const same = (got, want, what) => {
  if (got !== want) throw new Error(`${what}: ${JSON.stringify(got)}, not ${JSON.stringify(want)}`);
};

const browser = await puppeteer.connect({
  browserWSEndpoint: wsURL, defaultViewport: null, downloadBehavior: { policy: 'allow', downloadPath: `${dir}/puppeteer` },
});
const [page] = await browser.pages();
await page.goto(site);
const cdp = await browser.target().createCDPSession();
await cdp.send('Browser.setDownloadBehavior',
  { behavior: 'allow', downloadPath: `${dir}/puppeteer`, eventsEnabled: true });
const finished = new Promise((done) => cdp.on('Browser.downloadProgress', (e) => e.state !== 'inProgress' && done(e)));
const [begun] = await Promise.all([new Promise((done) => cdp.once('Browser.downloadWillBegin', done)), page.click('#file')]);
same(begun.suggestedFilename, 'report.txt', 'the suggested name');
const end = await finished;
same(end.state, 'completed', 'the state');
same(end.filePath, `${dir}/puppeteer/report.txt`, 'the path');
same(readFileSync(end.filePath, 'utf8'), 'the report', 'the download');

const input = await page.$('input');
await input.uploadFile(`${root}/allowed.txt`);
same(await page.evaluate(() => document.querySelector('input').files[0].text()), 'allowed', 'the upload');
const [chooser] = await Promise.all([page.waitForFileChooser(), page.click('input')]);
await chooser.accept([`${root}/allowed.txt`]);
const refused = await input.uploadFile('/etc/hostname').then(() => '', (e) => e.message);
if (!refused.includes('not a file in a directory of this session')) throw new Error(`/etc/hostname: ${refused}`);
await browser.disconnect();
console.log('done');
