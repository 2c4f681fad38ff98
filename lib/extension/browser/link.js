// The connection to the hub: registered, kept alive, made again when it was
// lost.

import {load, save, forRun} from './settings.js';

const FIRST_RETRY = 500; // milliseconds, doubled after each failure
const LAST_RETRY = 30_000;
const SILENCE = 60_000; // the hub pings every 20 s
const ANSWER = 10_000; // for the hub's answer to a registration
const BURST = 100; // milliseconds in which tabs that change are counted once
const STOPPED = 4002; // the hub does not want the browser back

const BADGES = {
  connected: ['on', '#1a7f37'], connecting: ['…', '#9a6700'], unpaired: ['?', '#9a6700'], off: ['off', '#6e7781'],
};

export class Link {
  state = 'connecting';
  why = '';
  #tabs;
  #socket = null;
  #retry = FIRST_RETRY;
  #timer = 0;
  #counting = 0; // the timer until the tabs are counted; 0: they are not going to be
  #connecting = null;
  #turn = 0; // counts what the user has changed: a connection made before does not count
  #heard = 0;

  constructor(tabs) {
    this.#tabs = tabs;
  }

  // connect connects to the hub unless it is connected already.
  connect() {
    this.#connecting ??= this.#connect().finally(() => (this.#connecting = null));
    return this.#connecting;
  }

  // restart connects with other settings.
  async restart() {
    this.#turn++;
    await this.#connecting; // with the settings of before
    this.#socket?.close(1000, 'the settings have changed');
    await this.#ended();
    this.#retry = FIRST_RETRY;
    await this.connect();
  }

  // end disconnects until the user connects again.
  async end(why) {
    await save({off: true});
    this.#turn++;
    this.#socket?.close(4000, why);
    await this.#ended();
    this.#show('off', why);
  }

  // tell sends the hub an event.
  tell(name, args) {
    this.#send({type: 'event', name, args});
  }

  // recount soon tells the hub how many tabs there are.
  recount() {
    this.#counting ||= setTimeout(async () => {
      this.#counting = 0;
      await this.#tellTabs();
    }, BURST);
  }

  async #tellTabs() {
    this.#send({type: 'pong', tabs: await this.#tabs.count()});
  }

  async #connect() {
    if (this.#socket) {
      if (Date.now() - this.#heard < SILENCE) return;
      this.#socket.close(4001, 'the hub is silent');
      await this.#ended();
    }
    const turn = this.#turn;
    const settings = await load();
    if (turn !== this.#turn) return;
    if (settings.off) return this.#show('off', this.why);
    if (!settings.code) return this.#show('unpaired', '');
    this.#show('connecting', this.why);
    try {
      const place = await register(settings);
      await save({instance: place.instanceId});
      if (turn === this.#turn) this.#open(place);
    } catch (e) {
      if (turn !== this.#turn) return;
      if (e.unpaired) return this.#show('unpaired', e.message);
      this.#show('connecting', e.message);
      this.#later();
    }
  }

  #open({instanceId, websocketUrl}) {
    const socket = new WebSocket(websocketUrl);
    this.#socket = socket;
    this.#heard = Date.now();
    socket.onopen = async () => {
      const hello = {type: 'hello', instanceId, browser: await describe(), tabs: await this.#tabs.count()};
      socket.send(JSON.stringify(hello));
    };
    socket.onmessage = (event) => this.#receive(socket, JSON.parse(event.data));
    socket.onclose = async (event) => {
      if (this.#socket !== socket) return;
      if (event.code === STOPPED) return this.end(event.reason);
      const turn = this.#turn;
      await this.#ended();
      if (this.#socket || turn !== this.#turn) return; // another connection has been made meanwhile
      this.#show('connecting', event.reason || 'the hub has ended');
      this.#later();
    };
  }

  async #receive(socket, message) {
    if (socket !== this.#socket) return; // it is being closed, and its clients are gone
    this.#heard = Date.now();
    switch (message.type) {
      case 'welcome':
        this.#retry = FIRST_RETRY;
        chrome.alarms.create('reconnect', {periodInMinutes: 0.5});
        this.#show('connected', '');
        this.recount(); // they may have changed since the hello
        break;
      case 'ping': // a message that the worker handles keeps it alive
        await this.#tellTabs();
        break;
      case 'tool_call': {
        const {id, name, args} = message;
        let answer;
        try {
          answer = {type: 'tool_result', id, result: (await this.#tabs.call(name, args)) ?? {}};
        } catch (e) {
          answer = {type: 'tool_error', id, error: asError(e)};
        }
        if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(answer));
        break;
      }
    }
  }

  // send sends nothing before the hub's welcome: the hello must come first.
  #send(message) {
    if (this.state !== 'connected' || this.#socket?.readyState !== WebSocket.OPEN) return;
    this.#socket.send(JSON.stringify(message));
  }

  // ended leaves nothing of the clients behind, who are gone with the hub.
  async #ended() {
    this.#socket = null;
    await this.#tabs.release();
  }

  #later() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.connect(), this.#retry * (0.5 + Math.random() / 2));
    this.#retry = Math.min(2 * this.#retry, LAST_RETRY);
    chrome.alarms.create('reconnect', {periodInMinutes: 0.5}); // the worker may be suspended before
  }

  #show(state, why) {
    this.state = state;
    this.why = why;
    const [text, color] = BADGES[state];
    chrome.action.setBadgeText({text});
    chrome.action.setBadgeBackgroundColor({color});
    chrome.action.setTitle({title: why ? `btools: ${state} (${why})` : `btools: ${state}`});
  }
}

// register asks the hub for a place. Both sides prove that they know the
// pairing code, without sending it.
async function register({hub, code, instance, launch}) {
  const challenge = `${Date.now()}.${crypto.randomUUID()}`;
  const [{run}, window, proof] = await Promise.all([
    forRun(), chrome.windows.getLastFocused().catch(() => null), prove(code, `register ${challenge}`),
  ]);
  let answer;
  try {
    answer = await fetch(`${hub}/register`, {
      method: 'POST',
      signal: AbortSignal.timeout(ANSWER),
      headers: {'Content-Type': 'application/json'},
      body: JSON.stringify({
        userAgent: navigator.userAgent, windowId: window?.id ?? 0, instanceId: instance, run, launch, challenge, proof,
      }),
    });
  } catch {
    throw new Error(`no hub answers at ${hub}`);
  }
  const body = await answer.json().catch(() => ({}));
  if (answer.status === 403) {
    throw Object.assign(new Error(body.error?.message ?? 'the hub has another pairing code'), {unpaired: true});
  }
  if (!answer.ok) throw new Error(body.error?.message ?? `the hub answered ${answer.status}`);
  if (body.proof !== (await prove(code, `hub ${challenge} ${body.websocketUrl}`))) {
    throw Object.assign(new Error('what answers there does not know the pairing code'), {unpaired: true});
  }
  if (new URL(body.websocketUrl).hostname !== '127.0.0.1') throw new Error('the hub names another computer');
  return body;
}

// prove returns a proof that its maker knows the code.
export async function prove(code, text) {
  const bytes = new TextEncoder();
  const key = await crypto.subtle.importKey('raw', bytes.encode(code), {name: 'HMAC', hash: 'SHA-256'}, false, ['sign']);
  const sum = await crypto.subtle.sign('HMAC', key, bytes.encode(text));
  return Array.from(new Uint8Array(sum), (b) => b.toString(16).padStart(2, '0')).join('');
}

async function describe() {
  const {fullVersionList = []} = (await navigator.userAgentData?.getHighEntropyValues(['fullVersionList'])) ?? {};
  return {userAgent: navigator.userAgent, versions: fullVersionList};
}

// asError returns a CDP error: chrome.debugger puts its JSON into the message.
function asError(e) {
  try {
    const {code, message, data} = JSON.parse(e.message);
    if (typeof code === 'number') return {code, message, data};
  } catch {
    // It is plain text.
  }
  return {code: -32000, message: e.message};
}
