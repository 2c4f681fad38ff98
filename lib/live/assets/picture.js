// picture.js: a page drawn as its screencast sends it.
import { wait } from './cdp.js';

const rungs = [[80, 1], [60, 2 / 3], [40, 1 / 2]]; // quality, scale
const slow = 150; // ms from a frame to its picture, above which less is asked for
const fast = 60; // below which more is
const longest = 10; // s from one frame to the next that is older: from there on the clock was set
const pace = 1000 / 30; // ms between two frames that are acknowledged, at least
const manyAnimated = 12; // tiles that get a picture each second
const animated = new Set(); // tiles that were animated, the longest first
const calm = matchMedia('(prefers-reduced-motion: reduce)');

// imageOf decodes a frame.
function imageOf(data) {
  const bytes = Uint8Array.fromBase64?.(data) ?? Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  return createImageBitmap(new Blob([bytes], { type: 'image/jpeg' }));
}

// Picture shows one page after another on a canvas.
export class Picture {
  meta; // of the frame that is shown
  #session = '';
  #rung = 0;
  #ages = [];
  #since = 0; // the rung was changed
  #still; // a timer, until the page counts as still
  #next; // a frame that waits
  #newest = 0; // timestamp of a frame
  #owed = []; // frames of a tile that are not acknowledged yet
  #busy = false;
  #lastAck = 0;
  #tries = 0; // counts the pages that were shown, so that what belongs to an older one stops

  // size returns the width and height in pixels of the largest picture of use. drawn is called after each frame.
  constructor(link, canvas, { size, drawn, tile, meta }) {
    Object.assign(this, { link, canvas, size, drawn, tile, meta });
    link.closed.then(() => {
      animated.delete(this);
      this.show('');
    });
    link.on('Page.screencastFrame', (frame, session) => {
      if (session !== this.#session) return;
      const older = this.#newest - frame.metadata.timestamp; // Chrome encodes frames side by side
      if (older > 0 && older < longest) return this.#ack(frame);
      this.#newest = frame.metadata.timestamp;
      if (this.#next && tile) this.#owed.push(this.#next); // acknowledged with the newer one, which is drawn instead
      else if (this.#next) this.#ack(this.#next);
      this.#next = frame;
      this.#draw();
    });
  }

  // show begins with a page, of which session is a CDP session; "": none.
  async show(session) {
    if (this.#session) this.link.send('Page.stopScreencast', {}, this.#session);
    this.#session = session;
    this.#next = undefined;
    this.#owed = [];
    const mine = ++this.#tries;
    while (session && mine === this.#tries) {
      try {
        return await this.#start();
      } catch (e) { // it navigates just now, or an older cast is there still
        if (/already active/.test(e.message)) this.link.send('Page.stopScreencast', {}, session);
        await wait(300);
      }
    }
  }

  #start() {
    const [quality, scale] = this.tile ? [60, 1] : rungs[this.#rung];
    const [width, height] = this.size();
    return this.link.call('Page.startScreencast', {
      format: 'jpeg', quality, sendLastFrame: true,
      maxWidth: Math.max(64, Math.round(width * scale)), maxHeight: Math.max(64, Math.round(height * scale)),
    }, this.#session);
  }

  // again asks for pictures of another size or quality.
  again() { if (this.#session) this.show(this.#session); }

  #ack(frame) { this.link.send('Page.screencastFrameAck', { sessionId: frame.sessionId }, this.#session); }

  async #draw() {
    if (this.#busy) return;
    this.#busy = true;
    while (this.#next) {
      const frame = this.#next, session = this.#session;
      this.#next = undefined;
      try {
        const image = await imageOf(frame.data);
        if (session === this.#session) this.#paint(image, frame.metadata);
        image.close();
      } catch { // a frame that is no picture
      }
      if (session !== this.#session) continue;
      if (this.tile) {
        await this.#pauseTile(frame);
      } else {
        const age = Date.now() - frame.metadata.timestamp * 1000;
        await wait(Math.max(0, this.#lastAck + pace - performance.now()));
        this.#lastAck = performance.now();
        this.#ack(frame);
        this.#adapt(age);
      }
    }
    this.#busy = false;
  }

  #paint(image, meta) {
    const { canvas } = this;
    if (canvas.width !== image.width || canvas.height !== image.height) {
      [canvas.width, canvas.height] = [image.width, image.height];
    }
    canvas.getContext('2d').drawImage(image, 0, 0);
    this.meta = meta;
    this.drawn();
  }

  // pauseTile acknowledges a frame of a tile once a second. A page that is animated costs a frame a second, or a fifth
  // of that if many are: its cast is stopped meanwhile.
  async #pauseTile(frame) {
    const session = this.#session, now = performance.now();
    this.#ages = [...this.#ages.filter((t) => t > now - 2000), now];
    if (this.#ages.length <= 2) {
      await wait(this.#ages.length > 1 || calm.matches ? 1000 : 0);
      for (const f of [...this.#owed.splice(0), frame]) this.#ack(f);
      return;
    }
    this.#next = undefined;
    this.#owed = [];
    this.link.send('Page.stopScreencast', {}, session);
    await wait([...animated.add(this)].indexOf(this) < manyAnimated ? 1000 : 5000);
    if (session === this.#session) this.show(session);
  }

  // adapt asks for smaller pictures when they come late, and for larger ones when they come soon or the page is still.
  #adapt(late) {
    const now = Date.now();
    clearTimeout(this.#still);
    if (this.#rung) this.#still = setTimeout(() => this.#change(0), 500);
    this.#ages = [...this.#ages.filter(([at]) => at > now - 1000), [now, late]];
    const sorted = this.#ages.map(([, age]) => age).sort((a, b) => a - b);
    const median = sorted[sorted.length >> 1];
    const held = now - this.#since;
    if (median > slow && sorted.length > 3 && held > 1000) this.#change(this.#rung + 1);
    else if (median < fast && held > 3000) this.#change(this.#rung - 1);
  }

  #change(rung) {
    if (!rungs[rung]) return;
    this.#rung = rung;
    this.#since = Date.now();
    this.again();
  }

  // pointOf returns the place in the page, in CSS pixels, of a place on the screen.
  pointOf(clientX, clientY) {
    const box = this.canvas.getBoundingClientRect(), { deviceWidth, deviceHeight, pageScaleFactor } = this.meta;
    const at = (v, size, all) => Math.max(0, Math.min(all - 1, (v * all) / size)) / (pageScaleFactor || 1);
    return { x: at(clientX - box.left, box.width, deviceWidth), y: at(clientY - box.top, box.height, deviceHeight) };
  }

  // placeOf returns the place of a point of the page in the picture, as CSS has it.
  placeOf({ x, y }) {
    const { deviceWidth: width, deviceHeight: height, pageScaleFactor: scale } = this.meta;
    return { left: `${(x * scale * 100) / width}%`, top: `${(y * scale * 100) / height}%` };
  }
}
