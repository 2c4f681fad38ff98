// input.js: what a person does with the mouse, a finger and the keyboard, as commands for a page.

const buttons = ['left', 'middle', 'right', 'back', 'forward'];
const most = 256; // commands without an answer, above which moves are left out
const isMac = /^Mac/.test(navigator.platform);

// isTyped reports whether a key types a text, by AltGr as well, which is Option on macOS.
function isTyped(e) {
  const isCommand = e.ctrlKey || e.metaKey || (e.altKey && !isMac);
  return [...e.key].length === 1 && (e.getModifierState('AltGraph') || !isCommand);
}

// modifiersOf returns the modifiers of an event as CDP has them. Cmd of macOS is Ctrl: the browser may run elsewhere.
function modifiersOf(e) {
  const shift = e.shiftKey ? 8 : 0;
  if (e.key && isTyped(e)) return shift;
  return (e.altKey ? 1 : 0) | (e.ctrlKey || (isMac && e.metaKey) ? 2 : 0) | (e.metaKey && !isMac ? 4 : 0) | shift;
}

// codeOf returns the key code of Windows for a key: that of its letter or digit, whatever the layout.
function codeOf(e) {
  const named = e.code.match(/^(?:Key|Digit)(.)$/);
  return named ? named[1].charCodeAt(0) : e.keyCode;
}

// Input sends what a person does to the page that a view looks at.
export class Input {
  #held = new Set(); // buttons
  #move; // that waits for the next picture of the screen
  #finger; // id of its pointer
  #down; // the event when it came
  #at; // the last event while the left button was down; nothing: a drag that begins now is not wanted any more
  #drag; // what is dragged
  #pressed = new Map(); // keys by code

  constructor(view) {
    this.view = view;
    view.link.on('Input.dragIntercepted', ({ data }) => this.#begin(data));
  }

  #send(method, params) { this.view.link.send(method, params, this.view.pages.session); }

  #pointOf(e) { return this.view.picture.pointOf(e.clientX, e.clientY); }

  #mouse(type, e, more = {}) {
    this.#send('Input.dispatchMouseEvent', {
      type, ...this.#pointOf(e), modifiers: modifiersOf(e), buttons: e.buttons ?? 0, ...more,
    });
  }

  #touch(type, e) {
    this.#send('Input.dispatchTouchEvent', { type, touchPoints: e ? [this.#pointOf(e)] : [] });
  }

  #click(e, how) {
    this.#mouse('mousePressed', e, how);
    this.#mouse('mouseReleased', e, { ...how, buttons: 0 });
  }

  #text(text) { if (text) this.#send('Input.insertText', { text }); }

  #compose(text) {
    this.#send('Input.imeSetComposition', { text, selectionStart: text.length, selectionEnd: text.length });
  }

  // handle has the events of a field for text, and of the surface that it is in, sent.
  handle(field) {
    const surface = field.parentElement;
    const on = (at, type, f) => at.addEventListener(type, (e) => this.view.picture.meta && f(e), { passive: false });
    on(surface, 'pointerdown', (e) => {
      e.preventDefault();
      field.focus({ preventScroll: true });
      surface.setPointerCapture?.(e.pointerId);
      if (e.pointerType !== 'touch') return this.#press(e);
      this.#cancelTouch();
      [this.#finger, this.#down] = [e.pointerId, e];
      this.#touch('touchStart', e);
    });
    on(surface, 'pointermove', (e) => {
      if (e.pointerType === 'touch' && e.pointerId !== this.#finger) return;
      if (!this.#move) requestAnimationFrame(() => this.#flush());
      this.#move = e;
      if (e.pointerType !== 'touch') this.#showCursor(e, surface);
    });
    on(surface, 'pointerup', (e) => (e.pointerType === 'touch' ? this.#raise(e) : this.#release(e)));
    on(surface, 'pointercancel', () => this.letGo());
    on(surface, 'contextmenu', (e) => {
      e.preventDefault();
      if (this.#held.size || e.button === 2) return; // the press was sent
      this.#cancelTouch();
      // A finger that rests, and a tap with two, have no press.
      this.#click(e, { button: 'right', buttons: 2, clickCount: 1 });
    });
    on(surface, 'wheel', (e) => {
      e.preventDefault();
      const unit = [1, 16, 400][e.deltaMode];
      this.scroll(e, e.deltaX * unit, e.deltaY * unit);
    });
    on(surface, 'dragover', (e) => e.preventDefault()); // files of this machine
    on(surface, 'drop', (e) => {
      e.preventDefault();
      this.view.files.drop([...e.dataTransfer.files], this.#pointOf(e));
    });
    on(field, 'keydown', (e) => this.#keyDown(e));
    on(field, 'keyup', (e) => this.#keyUp(e));
    on(field, 'paste', (e) => {
      e.preventDefault();
      this.#text(e.clipboardData.getData('text/plain'));
    });
    on(field, 'compositionupdate', (e) => this.#compose(e.data));
    on(field, 'compositionend', (e) => {
      if (e.data) this.#text(e.data);
      else this.#compose('');
      field.value = '';
    });
    on(field, 'input', (e) => { // of a keyboard on the screen, which has no keys
      if (e.isComposing) return;
      if (e.inputType === 'insertText') this.#text(e.data);
      field.value = '';
    });
    on(field, 'blur', () => this.#letButtonsGo()); // a finger stays: what it did before may bring up the keyboard
  }

  // scroll turns the wheel at the place of an event.
  scroll(e, deltaX, deltaY) { this.#mouse('mouseWheel', e, { deltaX, deltaY }); }

  // clickAt clicks at a point of the page, and returns when the page has seen it.
  clickAt(point) {
    const { link, pages: { session } } = this.view, how = { ...point, button: 'left', clickCount: 1 };
    const all = [{ ...point, type: 'mouseMoved' }, { ...how, type: 'mousePressed', buttons: 1 },
      { ...how, type: 'mouseReleased' }];
    return Promise.all(all.map((params) => link.call('Input.dispatchMouseEvent', params, session)));
  }

  // write puts a text in the place of what is selected.
  write(text) {
    if (text) this.#text(text);
    else this.press('Delete', 46);
  }

  async #press(e) {
    const button = buttons[e.button];
    this.#flush();
    const clickCount = this.#clicks(e);
    if (button === 'middle') { // it would paste the browser's clipboard, but on a link
      if (await this.view.frames.isLink(this.#pointOf(e))) this.#click(e, { button, buttons: 4, clickCount });
      return;
    }
    this.#held.add(button);
    if (button === 'left') this.#at = e;
    this.#mouse('mousePressed', e, { button, clickCount });
    if (button === 'left') this.view.list(this.#pointOf(e), e);
  }

  // raise takes the finger away.
  #raise(e) {
    if (e.pointerId !== this.#finger) return;
    this.#flush();
    this.#finger = undefined;
    this.#touch('touchEnd');
    if (Math.hypot(e.clientX - this.#down.clientX, e.clientY - this.#down.clientY) < 5) {
      this.view.list(this.#pointOf(e), e);
    }
  }

  // clicks counts presses at one place in a row: pointer events do not.
  #clicks(e) {
    const { x, y, time, count } = this.last ?? {};
    const same = e.timeStamp - time < 500 && Math.hypot(e.clientX - x, e.clientY - y) < 5;
    this.last = { x: e.clientX, y: e.clientY, time: e.timeStamp, count: same ? count + 1 : 1 };
    return this.last.count;
  }

  #release(e) {
    const button = buttons[e.button];
    this.#flush();
    if (!this.#held.delete(button)) return;
    if (button === 'left') this.#at = e;
    if (button === 'left' && this.#drag) return this.#drop(e);
    this.#mouse('mouseReleased', e, { button, clickCount: this.last?.count ?? 1 });
  }

  // showCursor shows the cursor that the page has at a place, ten times a second at most.
  async #showCursor(e, surface) {
    if (e.timeStamp - this.asked < 100) return;
    this.asked = e.timeStamp;
    surface.style.cursor = await this.view.frames.cursor(this.#pointOf(e));
  }

  // flush sends the last place of the mouse or the finger.
  #flush() {
    const e = this.#move;
    this.#move = undefined;
    if (!e) return;
    if (this.view.link.unanswered > most) return this.view.say('The page does not keep up with the mouse.');
    if (e.pointerType === 'touch') return this.#touch('touchMove', e);
    if (this.#held.has('left')) this.#at = e;
    if (this.#drag) return this.#tell('dragOver', e);
    this.#mouse('mouseMoved', e, { button: this.#held.values().next().value ?? 'none' });
  }

  // begin goes on with what the page has begun to drag: the person may have let it go already.
  #begin(data) {
    this.#drag = data;
    if (!this.#at) {
      this.#held.add('left');
      return this.letGo();
    }
    this.#tell('dragEnter', this.#at);
    if (!this.#held.has('left')) this.#drop(this.#at);
  }

  // tell tells the page what becomes of what is dragged.
  #tell(type, e) {
    const point = e ? this.#pointOf(e) : { x: 0, y: 0 };
    this.#send('Input.dispatchDragEvent', { type, ...point, data: this.#drag, modifiers: e ? modifiersOf(e) : 0 });
  }

  #drop(e) {
    this.#tell('dragOver', e); // again, as a browser does: the first one over an element is an entry only
    this.#tell('drop', e);
    this.#drag = undefined;
    this.#mouse('mouseReleased', e, { button: 'left', buttons: 0, clickCount: 1 });
  }

  #cancelDrag() {
    if (this.#drag) this.#tell('dragCancel');
    this.#drag = undefined;
  }

  #keyDown(e) {
    if (e.isComposing || ['Process', 'Dead', 'Unidentified'].includes(e.key)) return; // the field has it
    if (e.ctrlKey && e.altKey && e.key === 'Escape') {
      e.preventDefault();
      this.letGo();
      return (document.querySelector('[role=treeitem][tabindex="0"]') ?? document.querySelector('.bar .main')).focus();
    }
    const isText = isTyped(e), virtual = codeOf(e);
    if ((!isText && virtual === 86) || (e.shiftKey && e.key === 'Insert')) return; // its event has the text
    e.preventDefault();
    if (!isText && (virtual === 67 || virtual === 88)) {
      return this.view.copy().then((has) => { if (has && virtual === 88) this.press('Delete', 46); });
    }
    if (e.key === 'Escape') this.#cancelDrag();
    const key = { key: e.key, code: e.code, autoRepeat: e.repeat, modifiers: modifiersOf(e) };
    if (isText) Object.assign(key, { type: 'keyDown', text: e.key, unmodifiedText: e.key });
    else if (e.key === 'Enter') Object.assign(key, { type: 'keyDown', text: '\r', windowsVirtualKeyCode: 13 });
    else Object.assign(key, { type: 'rawKeyDown', windowsVirtualKeyCode: virtual });
    this.#pressed.set(e.code, { key: e.key, code: e.code, windowsVirtualKeyCode: virtual });
    this.#send('Input.dispatchKeyEvent', key);
  }

  #keyUp(e) {
    const key = this.#pressed.get(e.code);
    if (!key) return;
    e.preventDefault();
    this.#pressed.delete(e.code);
    this.#send('Input.dispatchKeyEvent', { type: 'keyUp', ...key, modifiers: modifiersOf(e) });
    if (isMac && e.key === 'Meta') this.#letKeysGo(); // macOS tells of no other key meanwhile
  }

  // press presses and releases a key.
  press(key, windowsVirtualKeyCode) {
    const text = key === 'Enter' ? '\r' : [...key].length === 1 ? key : undefined;
    const params = { key, code: key, windowsVirtualKeyCode };
    this.#send('Input.dispatchKeyEvent', { type: text ? 'keyDown' : 'rawKeyDown', text, ...params });
    this.#send('Input.dispatchKeyEvent', { type: 'keyUp', ...params });
  }

  // letGo releases what is held down, and drops nothing.
  letGo() {
    this.#cancelTouch();
    this.#letButtonsGo();
  }

  #letButtonsGo() {
    this.#cancelDrag();
    this.#at = undefined;
    for (const button of this.#held) {
      this.#send('Input.dispatchMouseEvent', { type: 'mouseReleased', button, x: -1, y: -1, clickCount: 1 });
    }
    this.#held.clear();
    this.#letKeysGo();
  }

  #cancelTouch() {
    if (this.#finger === undefined) return;
    this.#finger = this.#move = undefined;
    this.#touch('touchCancel');
  }

  #letKeysGo() {
    for (const key of this.#pressed.values()) this.#send('Input.dispatchKeyEvent', { type: 'keyUp', ...key });
    this.#pressed.clear();
  }
}
