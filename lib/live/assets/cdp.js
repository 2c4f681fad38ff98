// cdp.js: WebSockets to the front: one that lists sessions, and one for each session, which carries CDP.

const stored = 'token';

// takeToken takes the token out of the address, so that nobody copies it along, and returns the session that it names.
export function takeToken() {
  const [, token, key] = location.hash.match(/^#t=([^/]*)(?:\/(.*))?$/) ?? [];
  if (token === undefined) return;
  sessionStorage.setItem(stored, token);
  history.replaceState(null, '', key ? `#/${key}` : location.pathname);
}

// open opens a WebSocket, says who asks, and returns it with the answer. It throws what the front refuses.
async function open(path, hello) {
  const socket = new WebSocket(`ws://${location.host}${path}`);
  await new Promise((done, fail) => {
    socket.onopen = done;
    socket.onclose = socket.onerror = () => fail(new Error('bproxy view has ended: run it again'));
  });
  socket.send(JSON.stringify({ ...hello, token: sessionStorage.getItem(stored) ?? '' }));
  const first = await new Promise((done, fail) => {
    socket.onmessage = (e) => done(JSON.parse(e.data));
    socket.onclose = () => fail(new Error('the connection has ended'));
  });
  if (first.error) {
    socket.close();
    if (first.expired) { // the token, of a service that has ended: the user of this browser may do without
      sessionStorage.removeItem(stored);
      return open(path, hello);
    }
    throw Object.assign(new Error(first.error), { final: true });
  }
  if (first.token) sessionStorage.setItem(stored, first.token);
  return [socket, first];
}

// A token that is good once must not be used by two connections: the first one is waited for.
let before = Promise.resolve();

function inTurn(path, hello) {
  const turn = before.then(() => open(path, hello));
  before = turn.catch(() => {});
  return turn;
}

// watchSessions calls update with the sessions whenever they change, and fail with the reason while there is no
// connection. It connects again, and returns a function that ends it.
export function watchSessions(update, fail) {
  let socket, over = false;
  const connect = async () => {
    try {
      [socket] = await inTurn('/list', {});
      if (over) return socket.close();
      socket.onmessage = (e) => {
        const list = JSON.parse(e.data);
        if (list.error) fail(new Error(list.error));
        else update(list.sessions);
      };
      await new Promise((done) => { socket.onclose = done; });
      fail(new Error('The connection has ended. Trying again…'));
    } catch (e) {
      fail(e);
      if (e.final) return;
    }
    if (!over) setTimeout(connect, 1000);
  };
  connect();
  return () => { over = true; socket?.close(); };
}

// Link is a connection to a session.
export class Link {
  #socket;
  #last = 0;
  #pending = new Map();
  #listeners = new Map();

  // open connects; about is what the front says of the session: lock, why and control.
  static async open(key, hello) {
    const link = new Link();
    [link.#socket, link.about] = await inTurn(`/session/${encodeURIComponent(key)}`, hello);
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

  // close ends the connection.
  close() { this.#socket.close(); }
}

// Pages keeps the pages of a session, in their order, and the one that is looked at.
export class Pages {
  all = new Map(); // of TargetInfo by target
  current = ''; // target
  session = ''; // of CDP, with it
  history = []; // of it

  // changed is called when a page has come, gone, or has another title or address; opened when another one is looked at.
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
      if (targetId === this.current) {
        this.current = this.session = '';
        const last = [...this.all.keys()].at(-1);
        if (last) this.look(last);
        else this.opened();
      }
      this.changed();
    });
    link.on('Target.targetCrashed', ({ targetId }) => {
      const info = this.all.get(targetId);
      if (!info) return;
      info.crashed = true;
      this.changed();
    });
  }

  // begin asks for the pages, and returns when one is looked at.
  async begin() {
    await this.link.call('Target.setDiscoverTargets', { discover: true });
    await this.looked;
  }

  // look attaches to another page.
  async look(target) {
    const old = this.session;
    Object.assign(this, { current: target, session: '', history: [], at: 0 });
    try {
      const { sessionId } = await this.link.call('Target.attachToTarget', { targetId: target, flatten: true });
      if (this.current !== target) return this.link.send('Target.detachFromTarget', { sessionId });
      this.session = sessionId;
      this.opened();
    } catch { // it has gone
    }
    if (old) this.link.send('Target.detachFromTarget', { sessionId: old });
  }

  // read asks for the history and the title of the page that is looked at, once a second at most: Chrome tells of an
  // address only.
  async read() {
    this.stale = true;
    if (this.reads) return;
    this.reads = true;
    while (this.stale) {
      this.stale = false;
      const { session, now } = this;
      const { entries, currentIndex: at } = await this.link.call('Page.getNavigationHistory', {}, session).catch(() => ({}));
      const title = entries?.[at].title;
      if (entries && session === this.session && (now?.title !== title || at !== this.at || entries.length !== this.history.length)) {
        Object.assign(this, { history: entries, at });
        Object.assign(now ?? {}, { title });
        this.changed();
      }
      await new Promise((done) => setTimeout(done, 1000));
    }
    this.reads = false;
  }

  // now returns the page that is looked at.
  get now() { return this.all.get(this.current); }
}
