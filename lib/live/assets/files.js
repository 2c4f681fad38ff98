// files.js: files of the person's own machine for the page, and downloads of the page for the person.
import { html, useLayoutEffect, useRef } from './vendor/htm-preact.js';
import { originOf, shown } from './text.js';

const most = 50 << 20; // bytes that a page gets at once
const part = 3 << 20; // bytes of a command

// What is done with an element in a world of ours.
const describe = 'function () { return [this.accept, origin] }';
const addFile = `function (name, type, lastModified, isFirst) {
  if (isFirst) this.btools = [];
  this.btools.push([[], name, { type, lastModified }]);
}`;
const addPart = 'function (data) { this.btools.at(-1)[0].push(Uint8Array.from(atob(data), (c) => c.charCodeAt(0))) }';
// give returns why the element does not take the files.
const give = `function () {
  const data = new DataTransfer(), element = this.closest ? this : this.parentElement;
  for (const f of this.btools) data.items.add(new File(...f));
  delete this.btools;
  const input = element.closest('label')?.control ?? element;
  if (input.type === 'file') {
    if (input.disabled || (data.files.length > 1 && !input.multiple)) return 'The page takes one file there.';
    input.files = data.files;
    for (const type of ['input', 'change']) input.dispatchEvent(new Event(type, { bubbles: true, composed: true }));
    return '';
  }
  const { x, y, width, height } = element.getBoundingClientRect();
  const tell = (type) => !element.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, composed: true,
    cancelable: true, clientX: x + width / 2, clientY: y + height / 2 }));
  tell('dragenter');
  return tell('dragover') ? (tell('drop'), '') : (tell('dragleave'), 'The page takes no files there.');
}`;
const open = 'function () { this.showPicker() }';
const tellCanceled = "function () { this.dispatchEvent(new Event('cancel', { bubbles: true })) }";

// base64Of returns the bytes of a blob.
function base64Of(blob) {
  const reader = new FileReader();
  return new Promise((done, fail) => {
    reader.onload = () => done(reader.result.slice(reader.result.indexOf(',') + 1));
    reader.onerror = () => fail(reader.error);
    reader.readAsDataURL(blob);
  });
}

// Files answers the pages of a view that ask for files, while a person has control of it, and has downloads saved.
export class Files {
  #sessions = new Set(); // of CDP, in which choosers come to us
  #cancels = false; // one that we open ourselves, to cancel it

  constructor(view) {
    this.view = view;
    view.link.on('Page.fileChooserOpened', (c, session) => this.#cancels || this.#opened({ ...c, session }));
    view.link.on('Browser.downloadWillBegin', ({ url, suggestedFilename: name }) => {
      if (view.control.you) view.set({ downloads: [...view.downloads, { url, name }] });
    });
  }

  // begin has choosers of a page, or of a frame, come to us, and what is dragged there.
  begin(session) {
    this.#sessions.add(session);
    this.view.link.send('Page.enable', {}, session);
    this.#intercept(session, true);
    this.view.link.send('Input.setInterceptDrags', { enabled: true }, session);
  }

  // end has them come to nobody.
  end() {
    for (const session of this.#sessions) {
      this.#intercept(session, false);
      this.view.link.send('Input.setInterceptDrags', { enabled: false }, session);
    }
    this.#sessions.clear();
  }

  #intercept(session, enabled, cancel = false) {
    this.view.link.send('Page.setInterceptFileChooserDialog', { enabled, cancel }, session);
  }

  // on returns what calls functions on an element, in a world of ours.
  async #on({ session, frameId, backendNodeId }) {
    const { link } = this.view, worldName = 'btools files';
    const { executionContextId } = await link.call('Page.createIsolatedWorld', { frameId, worldName }, session);
    const node = { backendNodeId, executionContextId };
    const { object: { objectId } } = await link.call('DOM.resolveNode', node, session);
    return async (functionDeclaration, ...values) => {
      const { result, exceptionDetails } = await link.call('Runtime.callFunctionOn', { functionDeclaration, objectId,
        arguments: values.map((value) => ({ value })), returnByValue: true, userGesture: true }, session);
      if (exceptionDetails) throw new Error('The page does not take the files.');
      return result.value;
    };
  }

  async #opened(chooser) {
    if (!chooser.backendNodeId) return this.view.say('The page asks for files in a way that has no answer here.');
    const call = await this.#on(chooser), [accept, origin] = await call(describe);
    this.view.set({ chooser: { ...chooser, call, accept, origin } });
  }

  async #send(files, call) {
    const size = files.reduce((all, f) => all + f.size, 0);
    if (size > most) throw new Error(`A page gets 50 MB of files at most; these have ${Math.ceil(size / (1 << 20))}.`);
    for (const [i, f] of files.entries()) {
      await call(addFile, f.name, f.type, f.lastModified, i === 0);
      for (let at = 0; at < f.size; at += part) await call(addPart, await base64Of(f.slice(at, at + part)));
    }
    const refusal = await call(give);
    if (refusal) throw new Error(refusal);
  }

  // answer gives the page that asks the files that the person has chosen; none: the person has canceled.
  async answer(files) {
    const { view } = this, { chooser } = view;
    if (!chooser) return;
    try {
      if (files?.length) await this.#send(files, chooser.call);
      else await this.#cancel(chooser).catch(() => {}); // the page has gone
      view.set({ chooser: undefined });
    } catch ({ message }) {
      view.set({ chooser: { ...chooser, error: message } });
    }
  }

  // cancel opens the chooser again, and has the browser cancel it: the page gets the event of a real one.
  async #cancel({ session, call }) {
    this.#cancels = true;
    this.#intercept(session, true, true);
    await call(open).catch(() => call(tellCanceled)).finally(() => { this.#cancels = false; });
    this.#intercept(session, true);
  }

  // drop gives files to what is at a point.
  async drop(files, point) {
    if (!files.length) return;
    const error = await this.view.frames.at(point).then((at) => this.#on(at)).then((call) => this.#send(files, call))
      .then(() => '', (e) => e.message);
    this.view.set({ error });
  }

  // save has the person's browser save a download. The page's browser loads it a second time for that.
  async save({ url, name }) {
    const { link, key, pages: { session, current: frameId } } = this.view, parts = [];
    const options = { disableCache: false, includeCredentials: true };
    const { resource } = await link.call('Network.loadNetworkResource', { frameId, url, options }, session);
    if (!resource.success || resource.httpStatusCode >= 400) {
      throw new Error(`${name} cannot be loaded a second time: bproxy downloads ${key} has it.`);
    }
    for (let eof = false; !eof;) {
      const got = await link.call('IO.read', { handle: resource.stream, size: part }, session);
      parts.push(got.base64Encoded ? Uint8Array.from(atob(got.data), (c) => c.charCodeAt(0)) : got.data);
      ({ eof } = got);
    }
    link.send('IO.close', { handle: resource.stream }, session);
    const href = URL.createObjectURL(new Blob(parts, { type: 'application/octet-stream' }));
    Object.assign(document.createElement('a'), { href, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(href), 60_000);
  }
}

// Chooser has the person choose files for the page, and calls answer with them.
export function Chooser({ chooser: { accept, origin, mode, error }, answer }) {
  const input = useRef(), several = mode === 'selectMultiple';
  useLayoutEffect(() => {
    input.current.focus();
    try {
      input.current.showPicker();
    } catch { // the browser wants another press first
    }
  }, []);
  const choose = (e) => {
    const files = [...e.target.files];
    e.target.value = ''; // the same may be chosen again
    answer(files);
  };
  return html`<div class="dialog" role="dialog" aria-labelledby="wants">
    <h2 id="wants">${originOf(origin) || 'The page'} asks for ${several ? 'files' : 'a file'} of yours</h2>
    <p><input ref=${input} type="file" accept=${accept} multiple=${several} aria-label="Files of your machine"
      onChange=${choose} onCancel=${() => answer()} /></p>
    ${error && html`<p class="error" role="alert">${error}</p>`}
    <p class="buttons"><button onClick=${() => answer()}>Cancel</button></p>
  </div>`;
}

// Downloads shows what the page downloads, which lies on the machine of its browser.
export function Downloads({ v }) {
  const drop = (d) => v.set({ downloads: v.downloads.filter((other) => other !== d) });
  return v.downloads.map((d) => html`<p class="note why" key=${d}>${shown(d.name)} is a download.
    <button onClick=${() => v.files.save(d).then(() => drop(d), (e) => v.set({ error: e.message }))}>Save</button>
    <button aria-label=${`Forget ${shown(d.name)}`} onClick=${() => drop(d)}>×</button></p>`);
}
