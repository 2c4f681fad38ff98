// The first page of a browser that a program has launched with a profile of its
// user: launch.html, whose address has the mark of the launch. Chrome blocks it if
// the extension is not loaded yet, but shows its address.

import {isLaunched, load, saveLaunch} from './settings.js';
import {prove} from './link.js';

const PAGE = chrome.runtime.getURL('launch.html#');
const FRESH = 2 * 60_000; // milliseconds

// readLaunch reads the mark of that page, goes on, and reports whether there was
// one. The address proves that its maker knows the pairing code: it is not from a
// web page.
export async function readLaunch() {
  if (await isLaunched()) return false;
  const all = await chrome.tabs.query({});
  const own = all.find((tab) => (tab.pendingUrl || tab.url)?.startsWith(PAGE));
  if (!own) return false;
  const [text, proof] = (own.pendingUrl || own.url).slice(PAGE.length).split('&proof=');
  const given = new URLSearchParams(text);
  const {code, launch} = await load();
  if (!code || given.get('mark') === launch) return false;
  if (!(Math.abs(Date.now() - Number(given.get('at'))) < FRESH)) return false;
  if (proof !== (await prove(code, `launch ${text}`))) return false;
  await saveLaunch(given.get('mark'));
  if (given.has('only')) await chrome.tabs.remove(all.filter((tab) => tab.id !== own.id).map((tab) => tab.id));
  await chrome.tabs.update(own.id, {url: 'chrome://newtab/'});
  return true;
}
