// session.js: the page of one session: its picture, tabs and log, and the button that takes it over.
import { html, useEffect, useLayoutEffect, useRef, useState } from './vendor/htm-preact.js';
import { Ask } from './ask.js';
import { Link, Pages, keepConnected, wait } from './cdp.js';
import { Chooser, Downloads, Files } from './files.js';
import { Input } from './input.js';
import { Outline, Panel } from './outline.js';
import { Frames } from './page.js';
import { Picture } from './picture.js';
import { Choices, Dialog } from './popups.js';
import { clock, originOf, shown, verbOf } from './text.js';
import { Zoom } from './zoom.js';

const longest = 200; // lines of the log
const isTouched = matchMedia('(pointer: coarse)').matches; // a focused field brings up a keyboard on the screen

// addressOf returns the address that a person means.
function addressOf(text) {
  if (/^[a-z][a-z0-9+.-]*:(?!\d)/i.test(text)) return text;
  return (/^(localhost|127\.|\[::1\])/.test(text) ? 'http://' : 'https://') + text;
}

// View is what the page shows of a session and does with it. changed is called when there is something new.
class View {
  isOpen = false; // there is a connection
  error = '';
  control = { you: false };
  scripts = false; // the agent's go on
  clears = true; // passwords that were typed, at the end
  log = [];
  downloads = [];
  told = ''; // for the live region
  canvas = {}; // current: the element
  zoom = new Zoom(this);
  outline = new Outline(this);
  hasOutline = false;

  constructor(key, changed) { Object.assign(this, { key, changed, stored: `control ${key}` }); }

  // run keeps a connection until close.
  run() { this.close = keepConnected((s) => this.#connect(s), (e) => this.set({ isOpen: false, error: e.message })); }

  // wake has a hibernated session come back.
  wake() { this.wakes = true; this.again(); }

  // again connects once more.
  again() { this.close(); this.run(); }

  set(what) { Object.assign(this, what); this.changed(); }

  say(told) { this.set({ told }); }

  async #connect(signal) {
    const link = await Link.open(this.key, { wake: this.wakes }, signal);
    Object.assign(this, { link, wakes: false, error: '', control: { you: false } });
    Object.assign(this, { ask: undefined, dialog: undefined, choices: undefined, chooser: undefined });
    this.pages = new Pages(link, { changed: () => this.changed(), opened: () => this.#opened() });
    this.files = new Files(this);
    this.frames = new Frames(link, this.pages, (session) => this.files.begin(session));
    const hooks = { size: () => this.#size(), drawn: () => this.#drawn() };
    const { meta } = this.picture ?? {}; // of what the canvas shows until the first frame
    this.picture = new Picture(link, this.canvas.current, { meta, ...hooks });
    link.on('Btools.control', (c) => this.#controlled(c)).on('Btools.command', (c) => this.#commanded(c));
    link.on('Btools.asked', (a) => this.#asked(a));
    link.on('Page.javascriptDialogOpening', (d) => this.set({ dialog: d }));
    link.on('Page.javascriptDialogClosed', () => this.set({ dialog: undefined }));
    this.input = new Input(this);
    const { product } = await link.call('Browser.getVersion');
    this.isShell = product.startsWith('HeadlessChrome');
    this.set({ isOpen: true });
    await this.pages.begin();
    if (this.control.by && this.held) this.take(this.held); // as before the connection was lost
    await link.closed;
  }

  // size returns how many pixels there are for the picture.
  #size() {
    const { clientWidth: width, clientHeight: height } = this.canvas.current.closest('.stage');
    const by = Math.min(devicePixelRatio, 2) * this.zoom.scale;
    return [Math.min(1600, width * by), Math.min(1200, Math.max(height, 400) * by)];
  }

  #drawn() {
    const { deviceWidth, deviceHeight } = this.picture.meta, { style } = this.zoom.surface;
    style.setProperty('--ratio', deviceWidth / deviceHeight);
    style.setProperty('--width', `${deviceWidth}px`);
    this.pages.read();
  }

  #opened() {
    this.set({ dialog: undefined, choices: undefined, chooser: undefined, pointer: undefined });
    const { session } = this.pages;
    this.picture.show(session);
    if (!session) return;
    // In headless-shell a page with Page.enable waits for the answer to a dialog, which would be an effect of the view.
    if (!this.isShell) this.link.send('Page.enable', {}, session);
    if (this.control.you) this.#begin();
    this.pages.read();
  }

  // begin makes ready the page that is looked at for a person's input.
  #begin() {
    const { link, pages } = this;
    if (!pages.session) return;
    link.send('Page.enable', {}, pages.session);
    link.send('Page.bringToFront', {}, pages.session);
    this.frames.begin();
  }

  #controlled(control) {
    const { you, by } = control, before = this.control;
    this.set({ control });
    this.pages.keeps = you && control.private;
    if (!by) sessionStorage.removeItem(this.stored);
    if (you === before.you && by === before.by && control.private === before.private) return;
    if (you) this.#begin();
    if (before.you && !you && !this.gives) this.again(); // it has ended by itself: so do the CDP sessions of control
    this.gives = false;
    const told = you ? `You have control${control.private ? ', in private' : ''}. The agent waits.`
      : by ? `${shown(by)} has control.` : 'The agent goes on.';
    this.set({ choices: undefined, chooser: undefined, told });
  }

  #asked(ask) {
    if (ask.instructions) this.set({ ask, told: `You are asked: ${shown(ask.instructions)}` });
    else this.set({ ask: undefined });
  }

  #commanded(c) {
    if (c.x !== undefined && c.targetId === this.pages.current) this.pointer = { x: c.x, y: c.y };
    const verb = verbOf(c), last = this.log[0];
    if (!verb) return;
    const page = originOf(this.pages.all.get(c.targetId)?.url);
    if (last?.verb === verb && last.page === page) Object.assign(last, { at: Date.now(), times: last.times + 1 });
    else this.log = [{ verb, page, at: Date.now(), times: 1 }, ...this.log].slice(0, longest);
    // An agent may do thousands of things a second.
    this.waits ??= requestAnimationFrame(() => this.set({ waits: undefined }));
  }

  // held returns the name by which this page has control, or had it before a loss, and how.
  get held() { return JSON.parse(sessionStorage.getItem(this.stored)); }

  async take(how) {
    const { private: isPrivate = false } = this.control;
    const all = { holder: this.held?.holder ?? crypto.randomUUID(), scripts: this.scripts, private: isPrivate, ...how };
    if (!await this.act('Btools.take', all, '')) return;
    sessionStorage.setItem(this.stored, JSON.stringify(all));
    this.set({ scripts: all.scripts });
  }

  // give gives control back, and with it the answer to an ask, or declines that.
  async give(answer = {}) {
    this.input.letGo();
    if (this.control.private && this.clears && !await Promise.race([this.frames.clearTyped(), wait(3000)])) {
      this.set({ error: 'The page does not answer. Typed passwords are not cleared, and nothing is given back.' });
      return;
    }
    await Promise.race([this.files.answer(), wait(1000)]);
    this.files.end();
    this.gives = this.control.you;
    this.act('Btools.give', { ...answer, targetId: this.pages.current }, '');
  }

  // act does something that needs control, says what went wrong, and returns whether nothing did.
  async act(method, params, session = this.pages.session) {
    const error = await this.link.call(method, params, session).then(() => '', (e) => e.message);
    this.set({ error });
    return !error;
  }

  // copy copies what is selected in the page, and returns whether it could.
  async copy() {
    const text = await this.frames.selection();
    if (!text) return false;
    const copied = await navigator.clipboard.writeText(text).then(() => true, () => false);
    this.say(copied ? 'Copied.' : 'The browser does not let this page copy.');
    return copied;
  }

  // raise has the keyboard on the screen shown if a text can be typed where a finger was, and else hidden.
  async raise({ clientX, clientY }) {
    const isText = await this.frames.isText(this.picture.pointOf(clientX, clientY)).catch(() => false);
    this.type(isText ? 'text' : 'none');
  }

  // type gives the focus to the field for keys, with a keyboard on the screen ('text') or without ('none').
  type(inputMode) {
    const field = document.querySelector('.hand textarea');
    if (!field || (field.inputMode === inputMode && inputMode === 'none')) return;
    field.blur();
    field.inputMode = inputMode;
    field.focus({ preventScroll: true });
  }

  // list shows the list of the select at a point, if there is one.
  async list(point, { offsetX, offsetY }) {
    const options = await this.frames.options(point).catch(() => undefined);
    if (options) this.set({ choices: { options, left: `${offsetX}px`, top: `${offsetY}px` } });
  }

  // choose answers the list of a select, which the page has open, by keys: steps from its begin, or the text of an
  // option that is farther down, if only that one begins with it.
  choose(place) {
    if (!this.choices) return;
    const { input } = this, texts = this.choices.options.filter((o) => !o.off).map((o) => o.text.toLowerCase());
    const text = texts[place], { from = document.querySelector('.hand textarea') } = this.choices;
    this.set({ choices: undefined });
    if (this.hasOutline) this.outline.read(2);
    from?.focus({ preventScroll: true });
    if (text === undefined) return input.press('Escape', 27);
    if (place > 50 && !/^(.)\1*$/u.test(text) && texts.filter((t) => t.startsWith(text)).length === 1) {
      for (const c of text) input.press(c);
    } else {
      input.press('Home', 36);
      for (let i = 0; i < place; i++) input.press('ArrowDown', 40);
    }
    input.press('Enter', 13);
  }
}

// Session shows the session with a key; about is what the list says of it.
export function Session({ sessionKey, about }) {
  const [, render] = useState(0);
  const [v] = useState(() => new View(sessionKey, () => render((n) => n + 1)));
  useEffect(() => {
    v.run();
    return () => v.close();
  }, []);
  const { isOpen, control: { you, by, since, private: isPrivate } } = v;
  const inPrivate = html`<button class=${v.ask?.private ? 'main' : ''} onClick=${() => v.take({ private: true })}
    title="The agent and other persons see nothing of the pages until you give back.">Take over in private</button>`;
  const { lock, why, control } = v.link?.about ?? {};
  const choices = v.choices && html`<${Choices} ...${v.choices} choose=${(place) => v.choose(place)} />`;
  return html`
    <header class="bar">
      <a href="#" class="back" aria-label="All sessions">←</a>
      <h1>${shown(sessionKey)}</h1>
      <button aria-pressed=${String(v.hasOutline)} onClick=${() => v.set({ hasOutline: !v.hasOutline })}>Outline</button>
      <span class="state ${isOpen && by ? 'held' : ''}">${!isOpen ? (v.error ? 'not connected' : 'connecting')
        : by ? `${you ? 'you have' : `${shown(by)} has`} control${isPrivate ? ' in private' : ''} since ${clock(since)}`
        : about?.program}</span>
      ${you && isTouched && html`<button onClick=${() => v.type('text')}>Keyboard</button>`}
      ${isOpen && control && lock && html`<label class="box">
          <input type="checkbox" checked=${v.scripts} disabled=${(!!by && !you) || isPrivate}
            title="For a script that waits for you, such as by waitFor. It can also act by scripts."
            onChange=${(e) => { v.scripts = e.target.checked; if (you) v.take(); }} /> the agent's scripts go on</label>
        ${you && isPrivate && html`<label class="box"><input type="checkbox" checked=${v.clears}
            title="Clears the password fields that you typed into."
            onChange=${(e) => { v.clears = e.target.checked; }} /> clear typed passwords</label>`}
        ${!by && inPrivate}
        <button class=${v.ask?.private && !you ? '' : 'main'} disabled=${!!by && !you}
          onClick=${() => (you ? v.give() : v.take({ private: false }))}>${you ? 'Give back' : 'Take over'}</button>`}
    </header>
    <main>
    ${isOpen && (why || !control) && html`<p class="note why">${shown(why)
      || 'This address shows only: bproxy view --control opens one that may take over.'}</p>`}
    ${v.error && html`<p class="error" role="alert">${shown(v.error)}</p>`}
    ${isOpen && isPrivate && !you && html`<p class="note why">${shown(by)} has control in private: the pages are shown
      again when it is given back.</p>`}
    ${isOpen && v.ask && html`<${Ask} v=${v} key=${v.ask.since} />`}
    ${isOpen && you && html`<${Downloads} v=${v} />`}
    ${isOpen && html`<${Tabs} v=${v} you=${you} />`}
    <div class="view">
      <${Stage} v=${v} you=${you} asleep=${about?.hibernated} choices=${choices} />
      <div class="side">
      ${v.hasOutline && html`<${Panel} v=${v} choices=${v.choices?.from && choices} />`}
      <aside aria-label="What the agent does" tabindex="0"><h2>Agent</h2>
        ${v.log.length === 0 && html`<p class="note">Nothing since this page is open.</p>`}
        <ol>${v.log.map((l, i) => html`<li key=${l}>
          ${l.page !== v.log[i - 1]?.page && html`<span class="at">${l.page}</span>`}
          <time>${clock(l.at)}</time> ${shown(l.verb)} <span class="times">${l.times > 1 && `× ${l.times}`}</span></li>`)}</ol>
      </aside></div>
    </div></main>
    <p class="live" role="status">${v.told}</p>`;
}

// Tabs shows the tabs, and the address of the one that is looked at.
function Tabs({ v, you }) {
  const { pages } = v, { now } = pages;
  const go = async (step) => {
    const { entries, currentIndex } = await pages.history(), to = entries[currentIndex + step];
    if (to) v.act('Page.navigateToHistoryEntry', { entryId: to.id });
  };
  const navigate = (e) => {
    e.preventDefault();
    v.act('Page.navigate', { url: addressOf(e.target.elements.address.value.trim()) });
  };
  return html`<div class="tabs" role="group" aria-label="Tabs">
      ${[...pages.all.values()].map((p) => html`<span class="tab" key=${p.targetId}>
        <button aria-pressed=${String(p === now)} title=${shown(p.url)} onClick=${() => pages.look(p.targetId)}>
          ${shown(p.title) || originOf(p.url) || 'New tab'}</button>
        ${you && html`<button class="close" aria-label=${`Close ${shown(p.title)}`}
          onClick=${() => v.act('Target.closeTarget', { targetId: p.targetId }, '')}>×</button>`}</span>`)}
      ${you && html`<button aria-label="New tab" onClick=${async () => {
        const { targetId } = await v.link.call('Target.createTarget', { url: 'about:blank' });
        pages.look(targetId);
      }}>+</button>`}
    </div>
    <form class="address" onSubmit=${navigate}>
      ${you && html`
        <button type="button" aria-label="Back" disabled=${!pages.mayGoBack} onClick=${() => go(-1)}>←</button>
        <button type="button" aria-label="Forward" disabled=${!pages.mayGoForward} onClick=${() => go(1)}>→</button>
        <button type="button" aria-label="Reload" onClick=${() => v.act('Page.reload', {})}>⟳</button>`}
      <input name="address" aria-label="Address" readonly=${!you} spellcheck=${false} autocomplete="off"
        key=${now?.url} defaultValue=${shown(now?.url)} />
    </form>`;
}

// Stage shows the picture with what lies above it, and has a person's input sent.
function Stage({ v, you, asleep, choices }) {
  const field = useRef(), surface = useRef();
  useEffect(() => {
    v.zoom.handle(surface.current);
    let timer;
    window.onresize = () => {
      clearTimeout(timer);
      timer = setTimeout(() => v.picture?.again(), 200);
    };
    return () => { window.onresize = null; };
  }, []);
  useLayoutEffect(() => { // before the picture is shown: the first press counts
    if (!you) return;
    v.input.handle(field.current);
    if (!v.hasOutline) field.current.focus({ preventScroll: true });
  }, [you, v.input]);
  const page = v.pages?.now;
  return html`<div class="stage ${you ? 'held' : ''}">
    <div class="surface" ref=${surface}>
      <div class="pane"><div class="zoomed">
        <canvas ref=${v.canvas} width="1" height="1" role="img"
          aria-label=${`Picture of ${shown(page?.title) || 'the page'}`} />
        ${v.pointer && v.picture.meta && html`<div class="pointer" style=${v.picture.placeOf(v.pointer)}></div>`}
      </div></div>
      ${you && html`<div class="hand" key=${v.link}>
        <textarea ref=${field} inputmode=${isTouched ? 'none' : 'text'} autocapitalize="off" autocomplete="off"
          spellcheck=${false} tabindex=${v.hasOutline ? -1 : 0} aria-label="Keys for the page. Control, Alt and Escape leave it." /></div>`}
      ${!v.choices?.from && choices}
      ${v.chooser && you && html`<${Chooser} chooser=${v.chooser} key=${v.chooser.call}
        answer=${(files) => v.files.answer(files)} />`}
      ${page?.crashed && html`<div class="dialog"><h2>This page crashed</h2>
        ${you ? html`<button class="main" onClick=${() => v.act('Page.reload', {})}>Reload</button>`
          : html`<p class="note">Take over to reload it.</p>`}</div>`}
      ${v.dialog && html`<${Dialog} dialog=${v.dialog} mayAnswer=${you}
        answer=${(accept, promptText) => {
          v.act('Page.handleJavaScriptDialog', { accept, promptText });
          v.set({ dialog: undefined });
        }} />`}
    </div>
    ${!v.isOpen && asleep && html`<p><button class="main" onClick=${() => v.wake()}>Wake it</button></p>`}
    ${v.isOpen && v.pages.all.size === 0 && html`<p class="note">No tab is open.</p>`}
  </div>`;
}
