// The settings that outlive the worker, and the state that outlives it only
// within one run of the browser.

// bundled is a promise of the settings that came with the extension's files, if
// a program wrote them for this browser alone.
let bundled;

async function files() {
  return (bundled ??= await (await fetch(chrome.runtime.getURL('config.json'))).json());
}

// place returns where hub, code and off are kept. In a browser that a program has
// launched, they last as long as the browser: its profile may be a person's, who
// has chosen others.
async function place() {
  return (await isLaunched()) ? chrome.storage.session : chrome.storage.local;
}

// isLaunched reports whether a program has written the files for this browser.
export async function isLaunched() {
  return Boolean((await files()).launch);
}

// load returns {hub, code, launch, instance, off}: the hub's address, the
// pairing code, the mark of the program that launched the browser, the
// instance's ID, and whether the user has disconnected the browser.
export async function load() {
  const given = await files();
  const own = await place();
  const [kept, {launch = given.launch}, {instance}] = await Promise.all([
    own.get(['hub', 'code', 'off']), chrome.storage.session.get('launch'), chrome.storage.local.get('instance'),
  ]);
  for (const name of Object.keys(kept)) if (kept[name] === null) delete kept[name];
  return {...given, ...kept, launch, instance};
}

export async function save({instance, ...others}) {
  if (instance !== undefined) await chrome.storage.local.set({instance});
  await (await place()).set(others);
}

// saveLaunch keeps the mark of the program that has launched this run of the
// browser.
export async function saveLaunch(launch) {
  await chrome.storage.session.set({launch});
}

// forRun returns {run, opened}: a mark of this run of the browser, and the tabs
// that were opened for clients.
export async function forRun() {
  let {run, opened} = await chrome.storage.session.get(['run', 'opened']);
  if (!run) {
    run = crypto.randomUUID();
    await chrome.storage.session.set({run});
  }
  return {run, opened: opened ?? []};
}

export async function saveOpened(opened) {
  await chrome.storage.session.set({opened});
}
