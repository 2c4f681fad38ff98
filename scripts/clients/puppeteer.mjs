// puppeteer.mjs: puppeteer-core, connect, first to the stable WebSocket, then
// by /json/version.
import puppeteer from 'puppeteer-core';
import { check, httpURL, loses, site, wsURL } from './client.mjs';

let browser, lost;
let endpoint = { browserWSEndpoint: wsURL };
do {
  browser = await puppeteer.connect(endpoint);
  lost = new Promise((resolve) => browser.once('disconnected', resolve));
  const page = await (await browser.createBrowserContext()).newPage();
  await page.goto(`${site}/puppeteer`);
  check(await page.title(), '/puppeteer');
  endpoint = { browserURL: httpURL };
} while (await loses(lost));
await browser.disconnect();
console.log('done');
