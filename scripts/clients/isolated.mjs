// isolated.mjs: what the clients of bproxy --isolate share. cmd/isolate_test.go
// calls each as NAME.mjs HTTP_URL WS_URL SITE WHO DIR, several at once. Each
// works on pages whose addresses end in ?WHO, and sees pages of nobody else.
// In a session with a name, or with LONG=1, it does the same twice over. It
// leaves as it came, and says "done".
import { existsSync, mkdirSync, readFileSync, readdirSync } from 'node:fs';

export const [httpURL, wsURL, site, who, dir] = process.argv.slice(2);

// named says that the addresses are a named session's, which outlives its
// clients.
export const named = httpURL.includes('/session/');

const bound = 150; // seconds for all of it
setTimeout(() => {
  console.error(`${who}: no end after ${bound} s: ${doing}`);
  process.exit(1);
}, bound * 1000).unref();

let doing = 'begin';

// step notes what is done next, for a message.
export function step(what) {
  doing = what;
}

// rounds does it several times.
export async function rounds(round, times = named || process.env.LONG ? 2 : 1) {
  for (let n = 1; n <= times; n++) {
    try {
      await round(n);
    } catch (e) {
      throw new Error(`${who}, round ${n}, ${doing}: ${e.stack}`);
    }
  }
  console.log('done');
}

export const page = (path, host = site) => `${host}${path}?${who}`;
export const otherSite = site.replace('127.0.0.1', 'localhost');

export function equal(got, want, what) {
  if (JSON.stringify(got) !== JSON.stringify(want)) {
    throw new Error(`${what}: ${JSON.stringify(got)}, not ${JSON.stringify(want)}`);
  }
}

// own asserts that each address is of this client's own page.
export function own(urls, what) {
  const foreign = urls.filter((url) => url && !url.startsWith('about:blank') && !url.endsWith('?' + who));
  if (foreign.length) throw new Error(`${what}: it sees ${foreign}`);
}

// inPage are functions that run in a page.
export const inPage = {
  worker: (who) => new Promise((done) => {
    new Worker('/worker.js?' + who).onmessage = (e) => done(e.data);
  }),
  serviceWorker: async (who) => {
    const registered = await navigator.serviceWorker.register('/sw.js?' + who);
    await navigator.serviceWorker.ready;
    const scripts = (await navigator.serviceWorker.getRegistrations()).map((r) => r.active.scriptURL);
    return new Promise((done) => {
      navigator.serviceWorker.onmessage = (e) => done([e.data, scripts]);
      registered.active.postMessage('');
    });
  },
  permission: async () => (await navigator.permissions.query({ name: 'geolocation' })).state,
  state: () => `${document.hasFocus()} ${document.visibilityState}`,
};

// directory is a new one for downloads.
export function directory(n) {
  const path = `${dir}/${who}-${n}`;
  mkdirSync(path, { recursive: true });
  return path;
}

// downloaded waits for the one file of a directory, and asserts what it holds.
export async function downloaded(path) {
  for (;;) {
    const files = readdirSync(path).filter((name) => !name.endsWith('.crdownload'));
    if (files.length === 1 && existsSync(`${path}/${files[0]}`) && readFileSync(`${path}/${files[0]}`, 'utf8') === who) return;
    if (files.length > 1) throw new Error(`the directory of downloads has ${files}`);
    await new Promise((done) => setTimeout(done, 20));
  }
}
