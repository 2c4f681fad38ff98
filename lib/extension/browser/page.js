// The page behind the extension's button: the state, the tab in front, and the
// hub.

const at = (id) => document.getElementById(id);
const [tab] = await chrome.tabs.query({active: true, currentWindow: true});

const STATES = {connected: 'connected', connecting: 'looking for the hub', unpaired: 'not paired', off: 'disconnected'};

let failure = ''; // of the last action, until the next one

async function ask(action, more) {
  const s = await chrome.runtime.sendMessage({action, tabId: tab?.id, ...more});
  if (action !== 'show') failure = s.error ?? '';
  if (s.error) at('why').textContent = s.error;
  else show(s);
}

function show(s) {
  at('state').textContent = STATES[s.state];
  at('state').dataset.state = s.state;
  at('why').textContent = failure || (s.why ?? '');
  at('hub').textContent = s.hub ?? '';
  at('instance').textContent = s.state === 'connected' ? `This browser is ${s.instance}.` : '';
  at('connection').hidden = !s.paired || s.state === 'unpaired';
  at('pair').hidden = s.paired && s.state !== 'unpaired';
  at('pause').hidden = s.state === 'off';
  at('resume').hidden = s.state !== 'off';
  at('tab').hidden = s.state !== 'connected';
  at('share').hidden = s.used || !s.shareable;
  at('unshare').hidden = !s.shared;
  at('tab-text').textContent = tabText(s);
  const {hub} = at('pair').elements;
  if (!hub.value) hub.value = s.hub ?? 'http://127.0.0.1:3300';
}

function tabText(s) {
  if (s.shared) return 'Programs may use this tab.';
  if (s.used) return 'A program has opened this tab.';
  return s.shareable ? 'Programs can\'t see this tab.' : 'Chrome keeps this page from extensions.';
}

for (const action of ['share', 'unshare', 'pause', 'resume', 'forget']) {
  at(action).addEventListener('click', () => ask(action));
}
at('pair').addEventListener('submit', (event) => {
  event.preventDefault();
  const {hub, code} = event.target.elements;
  ask('pair', {hub: hub.value, code: code.value});
});
await ask('show');
setInterval(() => ask('show'), 1000);
