// downloads-playwright.mjs: downloads and uploads of playwright-core by
// connectOverCDP, as on a browser of its own. cmd/downloads_test.go calls it as
// downloads-playwright.mjs HTTP_URL SITE DIR.
import { chromium } from 'playwright-core';
import { readFileSync, writeFileSync } from 'node:fs';

const [httpURL, site, dir] = process.argv.slice(2);
const same = (got, want, what) => {
  if (got !== want) throw new Error(`${what}: ${JSON.stringify(got)}, not ${JSON.stringify(want)}`);
};

const browser = await chromium.connectOverCDP(httpURL);
for (const context of [browser.contexts()[0], await browser.newContext()]) {
  const page = context.pages()[0] ?? (await context.newPage());
  await page.goto(site);
  const [download] = await Promise.all([page.waitForEvent('download'), page.click('#file')]);
  same(download.suggestedFilename(), 'report.txt', 'the suggested name');
  same(readFileSync(await download.path(), 'utf8'), 'the report', 'path()');
  await download.saveAs(`${dir}/playwright/saved.txt`);
  same(readFileSync(`${dir}/playwright/saved.txt`, 'utf8'), 'the report', 'saveAs()');
  same(await download.failure(), null, 'failure()');

  const [popup] = await Promise.all([page.waitForEvent('download'), page.click('#popup')]); // opens no page
  same(readFileSync(await popup.path(), 'utf8'), 'the report', 'the download of a pop-up');

  const [slow] = await Promise.all([page.waitForEvent('download'), page.click('#slow')]);
  await slow.cancel();
  same(await slow.failure(), 'canceled', 'failure() of a canceled one');

  writeFileSync(`${dir}/up.txt`, 'up');
  await page.setInputFiles('input', `${dir}/up.txt`); // the client reads it
  same(await page.evaluate(() => document.querySelector('input').files[0].text()), 'up', 'the upload');
}
await browser.close();
console.log('done');
