// puppeteer-bidi.mjs: puppeteer-core over WebDriver BiDi, once, and gone
// without a word: its session is left to whoever notices.
import puppeteer from 'puppeteer-core';
import { check, site, wsURL } from './client.mjs';

const browser = await puppeteer.connect({ browserWSEndpoint: wsURL, protocol: 'webDriverBiDi' });
const page = await browser.newPage();
await page.goto(`${site}/bidi`);
check(await page.title(), '/bidi');
console.log('done');
process.exit(0);
