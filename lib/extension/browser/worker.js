// The service worker: it connects the browser to a hub, and answers the page
// of the extension.

import {Link} from './link.js';
import {Tabs} from './tabs.js';
import {load, save, forRun} from './settings.js';
import {readLaunch} from './launch.js';

const tabs = new Tabs();
const link = new Link(tabs);

// Chrome wakes the worker only for listeners that are there from the start.
chrome.runtime.onStartup.addListener(() => link.connect());
chrome.runtime.onInstalled.addListener(() => link.connect());
chrome.alarms.onAlarm.addListener(() => link.connect());
tabs.listen({
  tell: (name, args) => link.tell(name, args),
  cancel: () => link.end('the user has ended debugging in the browser'),
  recount: () => link.recount(),
});

chrome.runtime.onMessage.addListener((message, sender, answer) => {
  if (sender.id !== chrome.runtime.id || !sender.url?.startsWith(chrome.runtime.getURL(''))) return false;
  act(message).then(answer, (e) => answer({error: e.message}));
  return true;
});

// act does what the page of the extension asks for, and returns what it shows.
async function act({action, hub, code, tabId}) {
  switch (action) {
    case 'launched':
      await noteLaunch();
      break;
    case 'pair':
      await save({hub: hubAddress(hub), code: normalCode(code), off: false});
      await link.restart();
      break;
    case 'forget':
      await save({hub: null, code: null, off: true});
      await link.end('the user has disconnected the browser');
      break;
    case 'pause':
      await link.end('the user has disconnected the browser');
      break;
    case 'resume':
      await save({off: false});
      await link.restart();
      break;
    case 'share':
      await tabs.share(tabId);
      break;
    case 'unshare':
      await tabs.unshare(tabId);
      break;
  }
  const s = await load();
  return {
    state: link.state, why: link.why, hub: s.hub, paired: Boolean(s.code), instance: s.instance,
    shared: tabs.isShared(tabId), used: tabs.isUsed(tabId), shareable: await tabs.isShareable(tabId),
  };
}

// noteLaunch connects again if the browser shows the page of the program that has
// launched it, one time after the other.
let noting = Promise.resolve();
function noteLaunch() {
  noting = noting.then(readLaunch).then((found) => found && link.restart(), (e) => console.warn(e));
  return noting;
}

function hubAddress(text) {
  const url = new URL(text.includes('://') ? text : `http://${text}`);
  if (url.protocol !== 'http:' || url.hostname !== '127.0.0.1') {
    throw new Error('the address must be http://127.0.0.1:PORT');
  }
  return url.origin;
}

function normalCode(text) {
  const code = text.toUpperCase().replaceAll(/[^A-Z2-7]/g, '');
  if (code.length < 16) throw new Error('bproxy prints a code such as ABCDE-FGHIJ-KLMNO-PQRST');
  return code;
}

// What a worker that was killed had opened is closed before anything else.
forRun().then(async ({opened}) => {
  await tabs.closeLeft(opened);
  await noteLaunch();
  await link.connect();
});
