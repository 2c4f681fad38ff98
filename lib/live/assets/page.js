// page.js: what is asked of the page that is looked at, in worlds of their own: its scripts notice nothing.

// inWorld returns the value of an expression in an isolated world of a frame's document.
async function inWorld(link, session, frameId, expression, worldName) {
  const { executionContextId: contextId } = await link.call('Page.createIsolatedWorld', { frameId, worldName }, session);
  const { result } = await link.call('Runtime.evaluate', { contextId, expression, returnByValue: true }, session);
  return result.value;
}

const typing = 'btools typing'; // a world

// isText is called on a node, and returns whether a text can be typed there.
export const isText = `function () {
  const e = this.closest ? this : this.parentElement;
  return e.isContentEditable || (e.matches('textarea, input:is(:not([type]), [type=""], [type=text], [type=password],'
    + '[type=email], [type=search], [type=tel], [type=url], [type=number])') && !e.disabled && !e.readOnly);
}`;

// framesOf returns the frames of a tree.
const framesOf = ({ frame, childFrames = [] }) => [frame.id, ...childFrames.flatMap(framesOf)];

// notesTyping notes the password fields that are typed into; clearTyped clears them.
const notesTyping = `(() => {
  if (globalThis.clearTyped) return;
  const all = new Set();
  addEventListener('input', (e) => {
    const [field] = e.composedPath();
    if (e.isTrusted && /password/.test(field.type + field.autocomplete)) all.add(field);
  }, true);
  globalThis.clearTyped = () => {
    document.activeElement?.blur();
    for (const field of all) {
      field.value = '';
      for (const type of ['input', 'change']) field.dispatchEvent(new Event(type, { bubbles: true }));
    }
  };
})()`;

// Frames knows the frames of other sites, which have CDP sessions of their own.
export class Frames {
  #sessions = new Map(); // by frame
  #known; // when the last answer has come, and with it the frames
  #noted = new Set(); // sessions in which typing is noted

  // began is called with the CDP session of each page and frame.
  constructor(link, pages, began) {
    Object.assign(this, { link, pages, began });
    link.on('Target.attachedToTarget', ({ sessionId, targetInfo }) => {
      if (targetInfo.type !== 'iframe') return;
      this.#sessions.set(targetInfo.targetId, sessionId);
      this.begin(sessionId); // of those in it
    }).on('Target.detachedFromTarget', ({ sessionId }) => {
      for (const [frame, s] of this.#sessions) if (s === sessionId) this.#sessions.delete(frame);
    });
  }

  // begin learns of the frames in the page that is looked at, or in a frame.
  begin(session = this.pages.session) {
    this.began(session);
    if (this.pages.keeps && !this.#noted.has(session)) {
      this.#noted.add(session);
      this.link.send('Page.enable', {}, session);
      this.link.send('Page.addScriptToEvaluateOnNewDocument',
        { source: notesTyping, worldName: typing, runImmediately: true }, session);
    }
    const how = { autoAttach: true, waitForDebuggerOnStart: false, flatten: true };
    this.#known = this.link.call('Target.setAutoAttach', how, session).catch(() => {});
  }

  // at returns the element at a point, with the session and the frame that it is in; nothing: there is none.
  async at({ x, y }, session = this.pages.session, depth = 0) {
    try {
      await this.#known;
      const { cssVisualViewport: { pageX, pageY } } = await this.link.call('Page.getLayoutMetrics', {}, session);
      const place = { x: Math.round(x + pageX), y: Math.round(y + pageY) }; // in the document
      const found = await this.link.call('DOM.getNodeForLocation', place, session);
      const { node } = await this.link.call('DOM.describeNode', { backendNodeId: found.backendNodeId }, session);
      const child = this.#sessions.get(node.frameId);
      if (node.nodeName !== 'IFRAME' || !child || depth > 8) return { ...found, node, session };
      const { model } = await this.link.call('DOM.getBoxModel', { backendNodeId: found.backendNodeId }, session);
      return this.at({ x: x - model.content[0], y: y - model.content[1] }, child, depth + 1);
    } catch {
      return undefined;
    }
  }

  // run returns what a function returns that is called on an element.
  async run({ backendNodeId, session }, functionDeclaration) {
    const { object: { objectId } } = await this.link.call('DOM.resolveNode', { backendNodeId }, session);
    const how = { objectId, returnByValue: true, functionDeclaration };
    return (await this.link.call('Runtime.callFunctionOn', how, session)).result.value;
  }

  // options returns the list of the select at a point, if that opens one.
  async options(point) {
    const at = await this.at(point);
    return at && /^(SELECT|OPTION)$/.test(at.node.nodeName) ? this.optionsOf(at) : undefined;
  }

  // optionsOf returns the list of an element, if it is a select that opens one.
  optionsOf(at) {
    return this.run(at, `function () {
      if (this.nodeName !== 'SELECT' || this.multiple || this.size > 1 || this.disabled) return;
      return Array.from(this.options).filter((o) => getComputedStyle(o).display !== 'none').map((o) => ({
        text: o.label.slice(0, 200), selected: o.selected,
        group: o.parentNode.label?.slice(0, 200), off: o.disabled || o.parentNode.disabled === true }));
    }`);
  }

  // isText reports whether a text can be typed at a point.
  async isText(point) {
    const at = await this.at(point);
    return at && this.run(at, isText);
  }

  // trees returns the accessibility trees of the frames of the page that is looked at, each with its CDP session and
  // the iframe that it is in. Those of other sites are known only with control.
  async trees() {
    const { pages: { session: main } } = this, sessions = [main, ...this.#sessions.values()];
    const all = await Promise.allSettled(sessions.map(async (session) => {
      const { frameTree } = await this.link.call('Page.getFrameTree', {}, session);
      return Promise.all(framesOf(frameTree).map(async (frameId) => {
        const isMain = frameId === frameTree.frame.id && session === main;
        const owner = isMain ? undefined : await this.#ownerOf(frameId);
        const { nodes } = await this.link.call('Accessibility.getFullAXTree', { frameId }, session);
        return { session, nodes, owner: owner && `${owner.session} ${owner.backendNodeId}` };
      }));
    }));
    if (all[0].reason) throw all[0].reason;
    return all.flatMap((s) => s.value ?? []);
  }

  // ownerOf returns the iframe that a frame is in.
  #ownerOf(frameId) {
    return Promise.any([this.pages.session, ...this.#sessions.values()].map(async (session) => ({
      session, ...await this.link.call('DOM.getFrameOwner', { frameId }, session) })));
  }

  // placeOf returns the middle of a node as a point of the page that is looked at.
  async placeOf({ session, backendNodeId }) {
    const { quads } = await this.link.call('DOM.getContentQuads', { backendNodeId }, session);
    const [left, top, , , right, bottom] = quads[0], at = { x: (left + right) / 2, y: (top + bottom) / 2 };
    for (let [s, owner] = [session]; s !== this.pages.session; s = owner.session) {
      const [frame] = [...this.#sessions].find(([, of]) => of === s);
      owner = await this.#ownerOf(frame);
      const { model } = await this.link.call('DOM.getBoxModel', { backendNodeId: owner.backendNodeId }, owner.session);
      [at.x, at.y] = [at.x + model.content[0], at.y + model.content[1]];
    }
    return at;
  }

  // isLink reports whether a link is at a point.
  isLink(point) { return this.#ask(point, '!!e?.closest("a[href]")'); }

  // cursor returns the cursor at a point.
  async cursor(point) { return (await this.#ask(point, 'e && getComputedStyle(e).cursor')) || 'default'; }

  #ask({ x, y }, expression) {
    return inWorld(this.link, this.pages.session, this.pages.current,
      `((e) => ${expression})(document.elementFromPoint(${x}, ${y}))`).catch(() => undefined);
  }

  // holds reports whether an expression is true in the document that is looked at.
  holds(expression) { return inWorld(this.link, this.pages.session, this.pages.current, expression); }

  // clearTyped clears the password fields that were typed into, takes the focus away, and returns true.
  async clearTyped() {
    const how = { source: 'globalThis.clearTyped?.()', worldName: typing, runImmediately: true };
    await Promise.allSettled([...this.#noted].map(async (session) => {
      const { identifier } = await this.link.call('Page.addScriptToEvaluateOnNewDocument', how, session); // in all frames
      this.link.send('Page.removeScriptToEvaluateOnNewDocument', { identifier }, session);
    }));
    this.#noted.clear();
    return true;
  }

  // selection returns the text that is selected in the page, but not that of a password.
  async selection() {
    const expression = `(() => {
      const e = document.activeElement;
      if (e?.matches('textarea, input') && e.type !== 'password' && e.selectionStart !== null) {
        return e.value.slice(e.selectionStart, e.selectionEnd);
      }
      return e?.type === 'password' ? '' : String(getSelection());
    })()`;
    const all = [[this.pages.session, this.pages.current], ...Array.from(this.#sessions, ([frame, s]) => [s, frame])];
    for (const [session, frame] of all) {
      const text = await inWorld(this.link, session, frame, expression).catch(() => '');
      if (text) return text;
    }
    return '';
  }
}
