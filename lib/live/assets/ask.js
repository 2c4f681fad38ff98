// ask.js: what an agent asks the person to do in a session, and the person's answer.
import { html, useEffect, useRef, useState } from './vendor/htm-preact.js';
import { originOf, shown } from './text.js';

const patience = 5; // seconds until control is given back when the condition is true

// matches reports whether an address matches a pattern, in which * stands for anything.
function matches(pattern, address) {
  return new RegExp(`^${pattern.split('*').map((p) => p.replace(/[^\w]/g, '\\$&')).join('.*')}$`, 's').test(address);
}

// isTrue reports whether a condition is true for the page that is looked at: url=GLOB, text=TEXT, selector=CSS or
// cookie=NAME.
async function isTrue(condition, { frames, pages, link }) {
  const at = condition.indexOf('='), kind = condition.slice(0, at), value = condition.slice(at + 1);
  const { session, now } = pages;
  switch (kind) {
    case 'url': return matches(value, now?.url ?? '');
    case 'text': return frames.holds(`document.body?.innerText.includes(${JSON.stringify(value)})`);
    case 'selector': return frames.holds(`!!document.querySelector(${JSON.stringify(value)})`);
    default: {
      const { cookies } = await link.call('Network.getCookies', { urls: [now?.url] }, session);
      return cookies.some((c) => c.name === value);
    }
  }
}

// Ask shows what the agent asks in the session of a view, with the page's own origin above the agent's words.
export function Ask({ v }) {
  const { ask, control: { you }, pages } = v;
  const [left, count] = useState(); // seconds until control is given back; undefined: the person decides
  const note = useRef(), stays = useRef(false);
  useEffect(() => {
    stays.current = false;
    count();
    if (!you || !ask.until) return undefined;
    let before = false;
    const timer = setInterval(async () => {
      const is = await isTrue(ask.until, v).catch(() => false);
      if (!is) stays.current = false;
      if (is !== before) count(is ? patience : undefined);
      else if (is && !stays.current) count((s) => (s === undefined ? s : s - 1));
      before = is;
    }, 1000);
    return () => clearInterval(timer);
  }, [you, ask.since]);
  useEffect(() => { if (left === 0) v.give({ note: note.current?.value }); }, [left]);
  const answer = (outcome) => v.give({ outcome, note: note.current?.value });
  return html`<section class="ask" aria-label="You are asked">
    <p class="origin">${originOf(pages?.now?.url) || 'no page'}</p>
    <p class="words" tabindex="0"><b>${shown(ask.by) || 'The agent'} says:</b> ${shown(ask.instructions)}</p>
    ${you && html`<label class="box">Note for the agent <input ref=${note} maxlength="500" autocomplete="off" /></label>`}
    <p class="buttons">
      <button onClick=${() => answer('declined')}>Decline</button>
      ${you && html`<button class="main" onClick=${() => answer('done')}>Done, give back</button>`}</p>
    ${left >= 0 && html`<p role="alert">It looks done: control is given back in ${left} s.
      <button onClick=${() => { stays.current = true; count(); }}>Not yet</button></p>`}
  </section>`;
}
