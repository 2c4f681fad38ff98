// playwright.mjs: playwright-core, connectOverCDP.
import { chromium } from 'playwright-core';
import { check, httpURL, loses, site } from './client.mjs';

let browser, lost;
do {
  browser = await chromium.connectOverCDP(httpURL);
  lost = new Promise((resolve) => browser.once('disconnected', resolve));
  const page = await (await browser.newContext()).newPage();
  await page.goto(`${site}/playwright`);
  check(await page.title(), '/playwright');
} while (await loses(lost));
await browser.close();
console.log('done');
