// grid.js: all sessions, each with a small live picture.
import { html, useEffect, useRef, useState } from './vendor/htm-preact.js';
import { Link, Pages, keepConnected } from './cdp.js';
import { Picture } from './picture.js';
import { mayAsk } from './notify.js';
import { moveFocus } from './popups.js';
import { originOf, shown, span, verbOf } from './text.js';

const most = 64; // tiles with a connection at a time
const open = new Set(); // of the tiles' signals

// stateOf returns what a session does, as a class and as words.
function stateOf(s, acted) {
  if (s.ask && !s.control) return ['held', 'needs you'];
  if (s.control) return ['held', `${shown(s.control.by)} has control${s.control.private ? ' in private' : ''}`];
  if (s.hibernated) return ['sleeps', 'hibernated'];
  if ((s.idle >= 0 && s.idle < 2) || Date.now() - acted < 2000) return ['works', 'works'];
  return ['idle', s.idle < 0 ? 'leased' : `idle ${span(s.idle)}`];
}

// inLine returns words in one line, without those that are not there; a space keeps the place of none.
const inLine = (...words) => words.filter(Boolean).join(' · ') || '\u00a0';

// Tile shows a session. Its connection lasts while the tile is on the screen.
function Tile({ s, isHidden }) {
  const at = useRef(), canvas = useRef();
  const [isNear, come] = useState(false);
  const [seen, see] = useState({});
  useEffect(() => {
    const watcher = new IntersectionObserver((all) => come(all.at(-1).isIntersecting), { rootMargin: '100px' });
    watcher.observe(at.current);
    return () => watcher.disconnect();
  }, []);
  const isLive = isNear && !isHidden && s.kind !== 'firefox' && !s.hibernated;
  useEffect(() => isLive ? keepConnected(async (signal) => {
    if (open.size >= most) throw new Error(`no picture: ${most} others have one`);
    open.add(signal);
    try {
      const link = await Link.open(s.key, { tile: true }, signal);
      const size = () => [Math.min(480, Math.ceil(canvas.current.clientWidth * devicePixelRatio)), 480];
      const picture = new Picture(link, canvas.current, { tile: true, size, drawn: () => pages.read() });
      const changed = () => see((was) => ({ ...was, why: link.about.why, page: pages.now }));
      const pages = new Pages(link, { changed, opened: () => { picture.show(pages.session); changed(); } });
      link.on('Btools.command', (c) => {
        see((was) => ({ ...was, does: verbOf(c) || was.does, acted: Date.now() }));
        if (pages.all.has(c.targetId) && c.targetId !== pages.current) pages.look(c.targetId);
      });
      await pages.begin();
      await link.closed;
    } finally {
      open.delete(signal);
    }
  }, (e) => see((was) => ({ ...was, why: e.message }))) : undefined, [isLive]);
  const [kind, words] = stateOf(s, seen.acted ?? 0);
  const label = s.hibernated ? 'hibernated: its next use wakes it' : seen.page?.crashed ? 'this page crashed'
    : s.why || (!seen.page && seen.why);
  return html`<li ref=${at}><a class="tile" href=${`#/${encodeURIComponent(s.key)}`}>
    <span class="picture">
      <canvas ref=${canvas} width="16" height="10" role="img" aria-label=${`Picture of ${shown(s.name)}`} />
      ${label && html`<span class="label">${shown(label)}</span>`}</span>
    <span class="name">${shown(s.name)}<span class="state ${kind}">${words}</span></span>
    <span class="title">${shown(seen.page?.title) || '\u00a0'}</span>
    <span class="about origin">${inLine(originOf(seen.page?.url), s.tabs > 1 && `${s.tabs} tabs`, seen.does)}</span>
    ${s.ask && html`<span class="about words">${shown(s.ask.by) || 'The agent'} says: ${shown(s.ask.instructions)}</span>`}
    <span class="about">${inLine(s.program, shown(s.holder))}</span>
  </a></li>`;
}

// Grid shows the sessions; undefined: they are not known yet.
export function Grid({ sessions, error }) {
  const [wanted, filter] = useState('');
  const [isHidden, hide] = useState(document.hidden);
  const field = useRef(), list = useRef();
  const matches = (s) => `${s.name} ${s.program} ${s.holder}`.toLowerCase().includes(wanted.toLowerCase());
  const all = (sessions ?? []).filter(matches).sort((a, b) => !!b.ask - !!a.ask);
  useEffect(() => {
    document.onkeydown = (e) => {
      const isInField = document.activeElement === field.current;
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[e.key];
      if (e.key === '/' && !isInField) {
        e.preventDefault();
        field.current.focus();
      } else if (step && !(isInField && step[0])) {
        const tiles = [...list.current.querySelectorAll('a')];
        const columns = tiles.filter((t) => t.offsetTop === tiles[0].offsetTop).length;
        moveFocus(e, tiles, step[0] + step[1] * columns);
      }
    };
    document.onvisibilitychange = () => hide(document.hidden);
    return () => { document.onkeydown = document.onvisibilitychange = null; };
  }, []);
  return html`
    <header class="bar"><h1>Sessions</h1><span class="count">${sessions?.length ?? ''}</span>
      ${all.some((s) => s.ask) && mayAsk() && html`<button onClick=${() => Notification.requestPermission()}>
        Notify me of asks</button>`}
      <input type="search" ref=${field} aria-label="Filter" placeholder="Filter  /" value=${wanted}
        onInput=${(e) => filter(e.target.value)} onKeyDown=${(e) => e.key === 'Escape' && filter('')} /></header>
    ${error && html`<p class="error" role="alert">${shown(error)}</p>`}
    <main>
      ${sessions?.length === 0 && html`<div class="empty"><h2>No browser is in use</h2>
        <p>Sessions of your programs appear here while they run, for example:</p>
        <pre>bmcp call navigate https://example.com</pre><pre>bproxy share</pre></div>`}
      ${sessions?.length > all.length && !all.length && html`<p class="empty">None of ${sessions.length} is named “${wanted}”.</p>`}
      <ul class="grid" ref=${list}>${all.map((s) => html`<${Tile} key=${s.key} s=${s} isHidden=${isHidden} />`)}</ul>
    </main>
    <p class="live" role="status">${sessions ? `${all.length} sessions` : ''}</p>`;
}
