// popups.js: what a browser shows above its page, and no picture has: dialogs and the lists of selects.
import { html, useLayoutEffect, useRef, useState } from './vendor/htm-preact.js';
import { originOf, shown } from './text.js';

const few = 500; // options that are shown at once

// moveFocus answers an arrow key: it moves the focus in a list, to the first element if none has it.
export function moveFocus(e, list, step) {
  e.preventDefault();
  const from = list.indexOf(document.activeElement);
  list[from < 0 ? 0 : Math.max(0, Math.min(list.length - 1, from + step))]?.focus();
}

// Dialog shows a JavaScript dialog of the page, and calls answer with whether it is accepted, and the text.
export function Dialog({ dialog, mayAnswer, answer }) {
  const text = useRef(), box = useRef();
  useLayoutEffect(() => { (text.current ?? box.current?.querySelector('button'))?.focus(); }, [dialog]);
  const isAlert = dialog.type === 'alert', leaves = dialog.type === 'beforeunload';
  const done = (accept) => (e) => {
    e.preventDefault();
    answer(accept, text.current?.value ?? '');
  };
  return html`<form class="dialog" role="alertdialog" aria-labelledby="asks" aria-describedby="asked" ref=${box}
      onSubmit=${done(true)} onKeyDown=${(e) => e.key === 'Escape' && !isAlert && done(false)(e)}>
    <h2 id="asks">${originOf(dialog.url) || 'The page'} ${leaves ? 'asks whether to leave' : 'says'}</h2>
    <p id="asked">${leaves ? 'Changes that you made may not be saved.' : shown(dialog.message)}</p>
    ${dialog.type === 'prompt' && html`<input ref=${text} aria-label="Answer" defaultValue=${dialog.defaultPrompt} />`}
    ${mayAnswer
      ? html`<p class="buttons">
          ${!isAlert && html`<button type="button" onClick=${done(false)}>${leaves ? 'Stay' : 'Cancel'}</button>`}
          <button class="main">${leaves ? 'Leave' : 'OK'}</button></p>`
      : html`<p class="note">Take over to answer it.</p>`}
  </form>`;
}

// Choices shows the options of a select. choose gets the place of one among those that can be chosen; nothing: none.
export function Choices({ options, left, top, choose }) {
  const [wanted, filter] = useState('');
  const list = useRef();
  const enabled = options.filter((o) => !o.off);
  const all = options.filter((o) => o.text.toLowerCase().includes(wanted.toLowerCase()));
  useLayoutEffect(() => {
    (list.current.querySelector('input') ?? list.current.querySelector('[aria-selected=true], [role=option]'))?.focus();
  }, []);
  const move = (e) => {
    if (e.key === 'Escape') choose();
    const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (step) moveFocus(e, [...list.current.querySelectorAll('[role=option]:not([aria-disabled=true])')], step);
  };
  const leave = (e) => { if (!list.current.contains(e.relatedTarget)) choose(); };
  return html`<div class="choices" ref=${list} style=${{ left, top }} onKeyDown=${move} onfocusout=${leave}>
    ${options.length > 20 && html`<input type="search" aria-label="Filter" placeholder="Filter" onInput=${(e) => filter(e.target.value)} />`}
    <div role="listbox" aria-label="Options">
      ${all.slice(0, few).map((o, i) => html`
        ${o.group && o.group !== all[i - 1]?.group && html`<div class="group" role="presentation">${shown(o.group)}</div>`}
        <button type="button" role="option" tabindex="-1" aria-selected=${String(o.selected)} aria-disabled=${String(o.off)}
          onClick=${() => !o.off && choose(enabled.indexOf(o))}>${shown(o.text) || '\u00a0'}</button>`)}
    </div>
    ${all.length > few && html`<p class="note">${all.length - few} more: filter them.</p>`}
  </div>`;
}
