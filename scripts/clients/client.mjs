// client.mjs: what the clients here share. cmd/clients_test.go calls each as
// NAME.mjs HTTP_URL WS_URL SITE: it connects to the browser, loads a page of
// SITE and says "ready". A line on standard input tells it that its browser is
// lost: it starts anew. At the end of the input it leaves and says "done".
import { createInterface } from 'node:readline';

export const [httpURL, wsURL, site, ...more] = process.argv.slice(2);

// In seconds, for all of it: it ends what hangs, and no slow machine (Firefox took 73 s to begin a session when
// twelve of them began on two slow processors). The libraries have shorter ones for each step.
const bound = 280;
setTimeout(() => {
  console.error(`no end after ${bound} s`);
  process.exit(1);
}, bound * 1000).unref();

// check asserts that a page of SITE is there: its title is its path.
export function check(title, path) {
  if (title !== path) throw new Error(`the page ${path} has the title ${JSON.stringify(title)}`);
}

const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

// loses says that the page is there and returns whether the browser is lost
// then, when the client has noticed it too.
export async function loses(noticed) {
  console.log('ready');
  const { done } = await input.next();
  if (!done) await noticed;
  return !done;
}
