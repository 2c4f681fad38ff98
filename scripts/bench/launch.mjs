// launch.mjs PEER PATH: launches the browser as the peer does, prints the
// milliseconds that took, and closes it.
import { performance } from 'node:perf_hooks';

const [peer, path] = process.argv.slice(2);
const args = ['--no-sandbox', '--disable-background-networking'];
const peers = {
  async puppeteer() {
    const { default: puppeteer } = await import('puppeteer-core');
    return async () => {
      const b = await puppeteer.launch({ executablePath: path, headless: true, args });
      return () => b.close();
    };
  },
  async playwright() {
    const { chromium } = await import('playwright-core');
    return async () => {
      const b = await chromium.launch({ executablePath: path, headless: true, args });
      return () => b.close();
    };
  },
  async 'chrome-launcher'() {
    const { launch } = await import('chrome-launcher');
    return async () => {
      const b = await launch({ chromePath: path, chromeFlags: ['--headless=new', ...args], logLevel: 'silent' });
      return () => b.kill();
    };
  },
};
const start = await peers[peer](); // loading the library is not measured
const t = performance.now();
const close = await start();
console.log(performance.now() - t);
await close();
process.exit(0);
