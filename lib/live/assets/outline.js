// outline.js: the page as its accessibility tree, a list of items by which it is used without the picture.
import { html, useEffect, useLayoutEffect, useRef } from './vendor/htm-preact.js';
import { wait } from './cdp.js';
import { isText } from './page.js';
import { moveFocus } from './popups.js';
import { shown } from './text.js';

const most = 2000; // items that are shown at once
// plain are roles that are not told; inner are of no use, with all that is in them.
const plain = /^(none|generic|paragraph|listitem|LabelText|RootWebArea|StaticText|LineBreak)$/;
const inner = /^(InlineTextBox|ListMarker|MenuListPopup)$/;
const states = { checked: ['checked', 'not checked'], pressed: ['pressed', 'not pressed'], selected: ['selected'],
  expanded: ['expanded', 'collapsed'], disabled: ['disabled'], readonly: ['read-only'], required: ['required'],
  invalid: ['invalid'], focused: ['has the focus'] };

// itemOf returns what is told of a node, and done with it; nothing: neither. above is the name of the item it is in.
function itemOf(node, session, level, above) {
  const role = node.role?.value ?? '', name = node.name?.value?.trim() ?? '', value = node.value?.value ?? '';
  const p = Object.fromEntries((node.properties ?? []).map((q) => [q.name, String(q.value.value)]));
  const isField = !!p.editable && p.focusable === 'true', isPlain = plain.test(role);
  const isTold = isField || (isPlain ? role === 'StaticText' && name && !above.includes(name)
    : name || value || p.focusable || node.childIds?.length);
  if (node.ignored || !isTold) return undefined;
  const words = isPlain ? '' : role.replace(/(?<=[a-z])[A-Z]/g, ' $&').toLowerCase();
  const are = Object.entries(states).map(([s, [on, off]]) => p[s] && (p[s] === 'false' ? off : on));
  return {
    key: `${session} ${node.backendDOMNodeId}`, at: { backendNodeId: node.backendDOMNodeId, session },
    level, name, role, value: String(value), isField, isLong: p.multiline === 'true',
    about: [role === 'heading' ? `heading ${p.level}` : words || (isField && 'text field'), ...are].filter(Boolean).join(', '),
  };
}

// itemsOf returns the items of a page in their order, each with its level, from the trees of its frames.
function itemsOf(trees) {
  const inFrame = new Map(trees.map((t) => [t.owner, t])), items = [];
  const enter = ({ nodes: [root, ...others], session }, first) => {
    const all = new Map(others.map((n) => [n.nodeId, n]));
    const walk = (node, level, above) => {
      const item = itemOf(node, session, level, above), below = item ? level + 1 : level;
      const frame = inFrame.get(`${session} ${node.backendDOMNodeId}`);
      if (item) items.push(item);
      if (item?.role === 'Iframe' && !frame) item.about += ' of another site: take over to read it';
      if (!item?.isField) {
        for (const child of (node.childIds ?? []).map((id) => all.get(id))) {
          if (child && !inner.test(child.role?.value)) walk(child, below, item ? item.name : above);
        }
      }
      if (frame) enter(frame, below);
    };
    if (root) walk(root, first, '');
  };
  enter(inFrame.get(undefined), 1);
  return items;
}

// aim is called on a node: can a mouse get to it, and what is it?
const aim = `function () {
  const e = this.closest ? this : this.parentElement;
  const b = [...e.getClientRects()].find((r) => r.width && r.height), isText = (${isText}).call(e);
  const hit = b && e.getRootNode().elementFromPoint(b.x + b.width / 2, b.y + b.height / 2);
  return { isFree: !!hit && (e.contains(hit) || hit.contains(e) || hit.closest('label')?.control === e), isText,
    isSecret: e.type === 'password', isBox: /^(checkbox|radio)$/.test(e.type) };
}`;

// Outline is the outline of the page that a view looks at.
export class Outline {
  items = [];
  error = '';
  edits; // the item that a text is written for
  #closed = new Set(); // keys of items whose inner ones are not shown
  #current = 0; // place of the item that has the focus, if the tree has it
  #times = 0; // that it is still read

  constructor(view) { this.view = view; }

  // read reads the page anew, once a second at most, and some times in all: it may be about to change.
  async read(times = 1) {
    this.#times = Math.max(times, this.#times);
    if (this.reads) return;
    this.reads = true;
    for (; this.#times > 0; this.#times--) {
      const { frames } = this.view;
      const [items, error] = await frames.trees().then((t) => [itemsOf(t), ''], (e) => [[], e.message]);
      const key = this.items[this.#current]?.key, at = items.findIndex((i) => i.key === key);
      this.#current = at < 0 ? Math.min(this.#current, Math.max(0, items.length - 1)) : at;
      Object.assign(this, { items, error });
      this.view.changed();
      await wait(1000);
    }
    this.reads = false;
  }

  // rows returns the items that are shown.
  get rows() {
    const rows = [];
    let closed = Infinity; // level of the item that we are in
    for (const [place, item] of this.items.entries()) {
      if (item.level > closed) continue;
      const isParent = this.items[place + 1]?.level > item.level, isClosed = this.#closed.has(item.key);
      closed = isParent && isClosed ? item.level : Infinity;
      rows.push({ item, place, isOpen: isParent ? !isClosed : undefined });
    }
    const current = rows.slice(0, most).findLast((r) => r.place <= this.#current); // it may be in one that is closed
    if (current) current.isCurrent = true;
    return rows;
  }

  set(what) { Object.assign(this, what); this.view.changed(); }

  // look notes which item has the focus.
  look(place) { if (place !== this.#current) { this.#current = place; this.view.changed(); } }

  // open shows the items in one, or does not.
  open({ key }, isOpen) {
    if (isOpen) this.#closed.delete(key);
    else this.#closed.add(key);
    this.view.changed();
  }

  // use does with an item of the page what Enter does; row is its element.
  async use(item, row) {
    const { view } = this, { link, frames, input } = view, { name, at: { session, ...at } } = item;
    if (!view.control.you) return view.say('Take over to use it.');
    try {
      await link.call('DOM.scrollIntoViewIfNeeded', at, session);
      const { isFree, isText: isIn, isSecret, isBox } = await frames.run(item.at, aim);
      if (isIn) return this.set({ edits: { ...item, isSecret, row } });
      if (isFree) {
        await input.clickAt(await frames.placeOf(item.at));
      } else { // something lies above it
        await link.call('DOM.focus', at, session);
        input.press(isBox ? ' ' : 'Enter', isBox ? 32 : 13);
      }
      const options = await frames.optionsOf(item.at).catch(() => {}), { offsetTop: top, offsetHeight: height } = row;
      if (options) view.set({ choices: { options, left: '8px', top: `${top + height}px`, from: row } });
      view.say(`Clicked: ${shown(name || item.about)}`);
    } catch (e) {
      view.say(`It cannot be clicked: ${e.message}`);
    }
    this.read(3);
  }

  // write has a text be what is in the field that is edited, with Enter after it or not.
  async write(text, withEnter) {
    const { view, edits: { at: { session, ...at }, row } } = this, { link, frames, input } = view;
    this.set({ edits: undefined });
    row.focus();
    if (text === undefined) return;
    try {
      await link.call('DOM.focus', at, session);
      await frames.run({ ...at, session },
        'function () { return this.select ? this.select() : getSelection().selectAllChildren(this) }');
      input.write(text);
      if (withEnter) input.press('Enter', 13);
      view.say('Written.');
    } catch (e) {
      view.say(`It cannot be written: ${e.message}`);
    }
    this.read(3);
  }
}

// Panel shows the outline of a view, and in it the list of a select that was opened there.
export function Panel({ v, choices }) {
  const { outline: o, pages } = v, tree = useRef(), had = useRef(); // whether it had the focus
  const { rows, edits } = o, { you } = v.control;
  useEffect(() => { if (v.isOpen) o.read(3); },
    [v.isOpen, v.link, pages?.session, pages?.now?.url, you, v.control.private]);
  useLayoutEffect(() => { // an item that has gone
    if (had.current && document.activeElement === document.body) tree.current?.querySelector('[tabindex="0"]')?.focus();
  });
  const come = () => { had.current = true; };
  const leave = ({ relatedTarget: to }) => { if (to) had.current = !!to.closest('.outline, .dialog'); };
  const key = (e) => {
    const all = [...tree.current.children], row = all.indexOf(document.activeElement), r = rows[row];
    if (!r || e.ctrlKey || e.altKey || e.metaKey) return;
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -all.length, End: all.length }[e.key];
    if (step) return moveFocus(e, all, step);
    if (e.key === 'Enter') o.use(r.item, all[row]);
    else if (e.key === 'ArrowRight' && r.isOpen === false) o.open(r.item, true);
    else if (e.key === 'ArrowRight' && r.isOpen) all[row + 1]?.focus();
    else if (e.key === 'ArrowLeft' && r.isOpen) o.open(r.item, false);
    else if (e.key === 'ArrowLeft') all[rows.findLastIndex((q, i) => i < row && q.item.level < r.item.level)]?.focus();
    else if ([...e.key].length === 1 && e.key !== ' ') {
      const from = [...all.slice(row + 1), ...all.slice(0, row)];
      from.find((q) => q.textContent.trim().toLowerCase().startsWith(e.key.toLowerCase()))?.focus();
    } else return;
    e.preventDefault();
  };
  return html`<section class="outline" aria-labelledby="outline" onfocusin=${come} onfocusout=${leave}>
    <h2 id="outline">Outline</h2>
    <p class="buttons"><button onClick=${() => o.read()}>Read again</button>
      ${you && html`<button onClick=${() => v.type('text')}>Keys for the page</button>`}</p>
    ${o.error && html`<p class="error" role="alert">${shown(o.error)}</p>`}
    ${edits && html`<${Writer} edits=${edits} done=${(text, withEnter) => o.write(text, withEnter)} />`}
    ${rows.length > 0 && html`<ul role="tree" aria-label="The page" ref=${tree} onKeyDown=${key}>
      ${rows.slice(0, most).map(({ item, place, isOpen, isCurrent }) => html`<li role="treeitem" key=${item.key}
        aria-level=${item.level} aria-expanded=${isOpen?.toString()} tabindex=${isCurrent ? 0 : -1}
        style=${{ '--level': Math.min(item.level, 12) }}
        onFocus=${() => o.look(place)} onClick=${(e) => o.use(item, e.currentTarget)}>
        ${shown(item.name)} ${item.value && html`<b>${shown(item.value)}</b>`}
        <span class="note"> ${item.about}</span></li>`)}</ul>`}
    ${rows.length > most && html`<p class="note">${rows.length - most} more: close some by the left arrow.</p>`}
    ${choices}
  </section>`;
}

// Writer asks for the text of a field of the page, and calls done with it; with nothing: none.
function Writer({ edits: { name, about, value, isLong, isSecret }, done }) {
  const field = useRef();
  useLayoutEffect(() => field.current.focus(), []);
  const more = { ref: field, defaultValue: isSecret ? '' : value, autocomplete: 'off', spellcheck: false };
  return html`<form onKeyDown=${(e) => e.key === 'Escape' && done()} onSubmit=${(e) => {
      e.preventDefault();
      done(field.current.value, e.submitter.value === 'enter');
    }}><label>${shown(name || about)}
      ${isLong ? html`<textarea ...${more} rows="4" />`
        : html`<input ...${more} type=${isSecret ? 'password' : 'text'} />`}</label>
    <p class="buttons"><button class="main">Write</button><button value="enter">Write, and Enter</button>
      <button type="button" onClick=${() => done()}>Cancel</button></p></form>`;
}
