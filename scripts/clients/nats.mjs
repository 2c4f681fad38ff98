// Opens a page in the browser at a WebSocket, by Playwright, and prints its title.
import { chromium } from 'playwright-core';

const browser = await chromium.connectOverCDP(process.argv[2]);
const page = await browser.newPage();
await page.goto('data:text/html,<title>it works</title>');
console.log(await page.title());
await browser.close();
