// cdp.js: WebSockets to the front: one that lists sessions, and one for each session, which carries CDP.

const stored = 'token';

// takeToken stores the token of the address, and takes it out there, so that nobody copies it along.
export function takeToken() {
  const [, token, key] = location.hash.match(/^#t=([^/]*)(?:\/(.*))?$/) ?? [];
  if (token === undefined) return;
  sessionStorage.setItem(stored, token);
  history.replaceState(null, '', key ? `#/${key}` : location.pathname);
}

// wait returns after some milliseconds.
export const wait = (ms) => new Promise((done) => setTimeout(done, ms));

// keepConnected calls connect, which returns when its connection has ended, again and again. It calls failed with the
// reason of each end. It returns a function that ends all this, and the connection by the signal that connect gets.
export function keepConnected(connect, failed) {
  const over = new AbortController();
  const run = async () => {
    for (let pause = 300; !over.signal.aborted; pause = Math.min(pause * 2, 5000)) {
      try {
        await connect(over.signal);
        pause = 300;
        throw new Error('The connection has ended. Trying again…');
      } catch (e) {
        if (!over.signal.aborted) failed(e);
      }
      await wait(pause);
    }
  };
  run();
  return () => over.abort();
}

// open opens a WebSocket until a signal, says who asks, and returns it with the answer. It throws what is refused.
async function open(path, hello, signal) {
  signal.throwIfAborted();
  const socket = new WebSocket(`ws://${location.host}${path}`);
  signal.addEventListener('abort', () => socket.close());
  socket.onopen = () => socket.send(JSON.stringify({ ...hello, token: sessionStorage.getItem(stored) ?? '' }));
  const first = await new Promise((done, fail) => {
    socket.onmessage = (e) => done(JSON.parse(e.data));
    socket.onclose = () => fail(new Error('bproxy view has ended: run it again'));
  });
  if (first.expired) { // the token, of a service that has ended: the user of this browser may do without
    sessionStorage.removeItem(stored);
    return open(path, hello, signal);
  }
  if (first.error) throw new Error(first.error);
  if (first.token) sessionStorage.setItem(stored, first.token);
  return [socket, first];
}

// A token that is good once must not be used by two connections: the first one is waited for.
let before = Promise.resolve();

function inTurn(path, hello, signal) {
  const turn = before.then(() => open(path, hello, signal));
  before = turn.catch(() => {});
  return turn;
}

// watchSessions calls update with the sessions whenever they change, and failed with the reason while there is no
// connection. It returns a function that ends it.
export function watchSessions(update, failed) {
  return keepConnected(async (signal) => {
    const [socket] = await inTurn('/list', {}, signal);
    await new Promise((done, fail) => {
      socket.onclose = done;
      socket.onmessage = (e) => {
        const { sessions, error } = JSON.parse(e.data);
        if (error) fail(new Error(error));
        else update(sessions);
      };
    });
  }, failed);
}

// Link is a connection to a session.
export class Link {
  #socket;
  #last = 0;
  #pending = new Map();
  #listeners = new Map();

  // open connects until a signal; about is what the front says of the session: lock, why and control.
  static async open(key, hello, signal) {
    const link = new Link();
    [link.#socket, link.about] = await inTurn(`/session/${encodeURIComponent(key)}`, hello, signal);
    link.closed = new Promise((done) => { link.#socket.onclose = done; });
    link.#socket.onmessage = (e) => link.#hear(JSON.parse(e.data));
    link.closed.then(() => {
      for (const { fail } of link.#pending.values()) fail(new Error('the connection has ended'));
    });
    return link;
  }

  #hear(message) {
    if (message.id === undefined) {
      for (const f of this.#listeners.get(message.method) ?? []) f(message.params ?? {}, message.sessionId ?? '');
      return;
    }
    const asked = this.#pending.get(message.id);
    this.#pending.delete(message.id);
    if (message.error) asked?.fail(new Error(message.error.message));
    else asked?.done(message.result);
  }

  // on has a function called with the params and the CDP session of an event.
  on(method, f) {
    this.#listeners.set(method, [...(this.#listeners.get(method) ?? []), f]);
    return this;
  }

  // call sends a command and returns its result.
  call(method, params, sessionId) {
    if (this.#socket.readyState !== WebSocket.OPEN) return Promise.reject(new Error('the connection has ended'));
    const id = ++this.#last;
    this.#socket.send(JSON.stringify({ id, method, params, sessionId: sessionId || undefined }));
    return new Promise((done, fail) => this.#pending.set(id, { done, fail }));
  }

  // send sends a command whose answer does not matter.
  send(method, params, sessionId) {
    this.call(method, params, sessionId).catch(() => {});
  }

  // unanswered returns how many commands wait for their answer.
  get unanswered() { return this.#pending.size; }
}

// Pages keeps the pages of a session, in their order, and the one that is looked at.
export class Pages {
  all = new Map(); // of TargetInfo by target
  current = ''; // target
  session = ''; // of CDP, with it
  keeps = false; // the CDP sessions with those that were looked at

  // changed is called when a page comes, goes, or has another title or address; opened when another is looked at.
  constructor(link, { changed, opened }) {
    Object.assign(this, { link, changed, opened });
    const note = ({ targetInfo: info }) => {
      if (info.type !== 'page') return;
      const isNew = !this.all.has(info.targetId);
      const { title, url } = this.all.get(info.targetId) ?? {};
      this.all.set(info.targetId, { ...info, title: url === info.url && title ? title : info.title });
      if (!this.current || (isNew && info.openerId === this.current)) this.looked = this.look(info.targetId);
      this.changed();
    };
    link.on('Target.targetCreated', note).on('Target.targetInfoChanged', note);
    link.on('Target.targetDestroyed', ({ targetId }) => {
      if (!this.all.delete(targetId)) return;
      if (targetId === this.current) this.look([...this.all.keys()].at(-1));
      this.changed();
    });
    link.on('Page.frameNavigated', ({ frame }) => {
      if (this.all.has(frame.id)) this.all.get(frame.id).crashed = false; // also if its address and title are the same
      this.read();
    });
    link.on('Target.targetCrashed', ({ targetId }) => {
      if (this.all.has(targetId)) this.all.get(targetId).crashed = true;
      this.changed();
    });
  }

  // begin asks for the pages, and returns when one is looked at.
  async begin() {
    await this.link.call('Target.setDiscoverTargets', { discover: true });
    await this.looked;
  }

  // look attaches to another page; "": none.
  async look(target = '') {
    const old = this.session;
    Object.assign(this, { current: target, session: '', mayGoBack: false, mayGoForward: false });
    if (!target) return this.opened();
    try {
      const { sessionId } = await this.link.call('Target.attachToTarget', { targetId: target, flatten: true });
      if (this.current !== target) return this.link.send('Target.detachFromTarget', { sessionId });
      this.session = sessionId;
      this.opened();
    } catch { // it has gone
    }
    if (old && !this.keeps) this.link.send('Target.detachFromTarget', { sessionId: old });
  }

  // read learns the title of the page that is looked at, and where it may go, once a second at most: Chrome tells of
  // an address only.
  async read() {
    this.stale = true;
    if (this.reads) return;
    this.reads = true;
    while (this.stale) {
      this.stale = false;
      const { session, now } = this;
      const { entries, currentIndex: at } = await this.history().catch(() => ({}));
      if (entries && session === this.session) {
        Object.assign(this, { mayGoBack: at > 0, mayGoForward: at < entries.length - 1 });
        if (now) now.title = entries[at].title;
        this.changed();
      }
      await wait(1000);
    }
    this.reads = false;
  }

  // history returns where the page that is looked at has been, and where it is in that.
  history() { return this.link.call('Page.getNavigationHistory', {}, this.session); }

  // now returns the page that is looked at.
  get now() { return this.all.get(this.current); }
}
