// grid.js: all sessions, each with a small live picture.
import { html, useEffect, useRef, useState } from './vendor/htm-preact.js';
import { Link, Pages } from './cdp.js';
import { Picture } from './picture.js';
import { originOf, shown, span, verbOf } from './text.js';

const most = 64; // tiles with a connection
const manyAnimated = 12; // tiles that get a picture each second
const open = new Set(), animated = [];

// isOften reports whether an animated tile gets a picture each second: the first ones do.
function isOften(picture) {
  if (!animated.includes(picture)) animated.push(picture);
  return animated.indexOf(picture) < manyAnimated;
}

// stateOf returns what a session does, as a class and as words.
function stateOf(s, acted) {
  if (s.control) return ['other', `${shown(s.control.by)} has control`];
  if (s.hibernated) return ['sleeps', 'hibernated'];
  if (s.idle < 2 || Date.now() - acted < 2000) return ['works', 'works'];
  return ['idle', `idle ${span(s.idle)}`];
}

// Tile shows a session. Its connection lasts while the tile is on the screen.
function Tile({ s }) {
  const at = useRef(), canvas = useRef();
  const [seen, see] = useState({});
  const shows = s.kind !== 'firefox' && !s.hibernated;
  useEffect(() => {
    if (!shows) return undefined;
    let link, picture, over = false, isShown = false;
    const close = () => {
      link?.close();
      open.delete(at);
      if (picture && animated.includes(picture)) animated.splice(animated.indexOf(picture), 1);
      link = picture = undefined;
    };
    const connect = async () => {
      if (over || !isShown || link || document.hidden || open.has(at) || open.size >= most) return;
      open.add(at);
      try {
        link = await Link.open(s.key, { tile: true });
        if (over || !isShown) return close();
        const mine = link;
        picture = new Picture(link, canvas.current, { tile: true, size: () => [Math.min(480, Math.ceil(canvas.current.clientWidth * devicePixelRatio)), 480], animated: isOften, drawn: () => pages.read() });
        const note = () => see((was) => ({ ...was, why: mine.about.why, title: pages.now?.title, url: pages.now?.url, crashed: pages.now?.crashed }));
        const pages = new Pages(link, { opened: () => { mine === link && picture.show(pages.session); note(); }, changed: note });
        link.on('Btools.command', (c) => {
          see((was) => ({ ...was, does: verbOf(c) || was.does, acted: Date.now() }));
          if (pages.all.has(c.targetId) && c.targetId !== pages.current) pages.look(c.targetId);
        });
        await pages.begin();
        await link.closed;
        if (mine === link) {
          close();
          setTimeout(connect, 2000);
        }
      } catch (e) {
        see((was) => ({ ...was, why: e.message }));
        close();
        if (!e.final) setTimeout(connect, 2000);
      }
    };
    const watcher = new IntersectionObserver(([e]) => {
      isShown = e.isIntersecting;
      if (isShown) connect();
      else close();
    }, { rootMargin: '100px' });
    watcher.observe(at.current);
    const visibility = () => (document.hidden ? close() : connect());
    document.addEventListener('visibilitychange', visibility);
    return () => {
      over = true;
      watcher.disconnect();
      document.removeEventListener('visibilitychange', visibility);
      close();
    };
  }, [s.key, shows]);
  const [kind, words] = stateOf(s, seen.acted ?? 0);
  const label = s.hibernated ? 'hibernated: its next use wakes it' : seen.crashed ? 'this page crashed' : s.why || (!seen.url && seen.why);
  return html`<li ref=${at}><a class="tile" href=${`#/${encodeURIComponent(s.key)}`}>
    <span class="picture"><canvas ref=${canvas} width="16" height="10" role="img" aria-label=${`Picture of ${shown(s.name)}`}></canvas>
      ${label && html`<span class="label">${shown(label)}</span>`}</span>
    <span class="name">${shown(s.name)}<span class="state ${kind}">${words}</span></span>
    <span class="title">${shown(seen.title) || '\u00a0'}</span>
    <span class="about">${[originOf(seen.url), s.tabs > 1 && `${s.tabs} tabs`, seen.does].filter(Boolean).join(' · ') || '\u00a0'}</span>
    <span class="about">${[s.program, shown(s.holder)].filter(Boolean).join(' · ')}</span>
  </a></li>`;
}

// Grid shows the sessions; undefined: they are not known yet.
export function Grid({ sessions, error }) {
  const [wanted, filter] = useState('');
  const field = useRef(), list = useRef();
  const all = (sessions ?? []).filter((s) => [s.name, s.program, s.holder].join(' ').toLowerCase().includes(wanted.toLowerCase()));
  useEffect(() => {
    const keys = (e) => {
      if (e.key === '/' && document.activeElement !== field.current) {
        e.preventDefault();
        field.current?.focus();
      } else if (e.key === 'Escape' && document.activeElement === field.current) {
        field.current.value = '';
        filter('');
      }
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[e.key];
      const tiles = [...(list.current?.querySelectorAll('a') ?? [])];
      if (!step || !tiles.length || (document.activeElement === field.current && !step[1])) return;
      e.preventDefault();
      const from = tiles.indexOf(document.activeElement);
      const columns = tiles.filter((t) => t.offsetTop === tiles[0].offsetTop).length;
      tiles[from < 0 ? 0 : Math.max(0, Math.min(tiles.length - 1, from + step[0] + step[1] * columns))].focus();
    };
    document.addEventListener('keydown', keys);
    return () => document.removeEventListener('keydown', keys);
  }, []);
  return html`
    <header class="bar"><h1>Sessions</h1><span class="count">${sessions?.length ?? ''}</span><span class="space"></span>
      <input type="search" ref=${field} aria-label="Filter" placeholder="Filter  /" onInput=${(e) => filter(e.target.value)} /></header>
    ${error && html`<p class="error" role="alert">${shown(error)}</p>`}
    <main>
      ${sessions?.length === 0 && html`<div class="empty"><h2>No browser is in use</h2>
        <p>Sessions of your programs appear here while they run, for example:</p>
        <pre>bmcp call navigate https://example.com</pre><pre>bproxy share</pre></div>`}
      ${sessions?.length > 0 && all.length === 0 && html`<p class="empty">None of ${sessions.length} is named “${wanted}”.</p>`}
      <ul class="grid" ref=${list}>${all.map((s) => html`<${Tile} key=${s.key} s=${s} />`)}</ul>
    </main>
    <p class="live" role="status">${sessions ? `${all.length} sessions` : ''}</p>`;
}
