// zoom.js: fingers on the picture. Two zoom it and move it, and scroll the page beyond its edges; one is the page's,
// or moves the picture of a person who only looks.

const most = 5; // times
const slack = 12; // pixels that two fingers move before it is known what they do

const clamp = (v, least, greatest) => Math.max(least, Math.min(greatest, v));

export class Zoom {
  scale = 1;
  #left = 0; // of the picture, in widths of the surface
  #top = 0; // in its heights
  #fingers = new Map(); // the last event of each
  #isOurs = false; // what the fingers do, until all have left
  #does; // 'zoom' or 'move'
  #from; // of the last move: the middle of the fingers, and how far apart they are
  #down; // the event of the first finger
  #before; // the scale at that time

  constructor(view) { this.view = view; }

  // handle hears of all fingers on a surface before the input of the page does.
  handle(surface) {
    this.surface = surface;
    for (const type of ['pointerdown', 'pointermove', 'pointerup', 'pointercancel']) {
      surface.addEventListener(type, (e) => this.#hear(e), true);
    }
  }

  #hear(e) {
    const { view } = this, fingers = this.#fingers, isFirst = !fingers.size, { you } = view.control;
    const isUp = e.type === 'pointerup' || e.type === 'pointercancel', first = fingers.get(e.pointerId);
    if (e.pointerType !== 'touch' || !(first || (e.type === 'pointerdown' && e.target.closest('.pane, .hand')))) return;
    if (isUp) fingers.delete(e.pointerId);
    else fingers.set(e.pointerId, e);
    if (isFirst) [this.#down, this.#before] = [e, this.scale];
    if (!this.#isOurs && (fingers.size > 1 || !you)) {
      [this.#isOurs, this.#does] = [true, undefined];
      view.input?.letGo();
    }
    if (!this.#isOurs) return isUp && this.#apart(e, this.#down) < slack && view.raise(e);
    e.stopPropagation();
    if (e.type === 'pointermove') this.#move();
    else if (fingers.size) this.#from = this.#measure();
    else this.#end();
  }

  #end() {
    this.#isOurs = false;
    if (this.scale !== this.#before) this.view.picture?.again();
  }

  #measure() {
    const [a, b = a] = this.#fingers.values();
    return { x: (a.clientX + b.clientX) / 2, y: (a.clientY + b.clientY) / 2, apart: this.#apart(a, b) };
  }

  #apart(a, b) { return Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY); }

  #move() {
    const from = this.#from, to = this.#measure(), { left, top, width, height } = this.surface.getBoundingClientRect();
    if (Math.abs(to.apart - from.apart) > slack) this.#does ??= 'zoom';
    else if (Math.hypot(to.x - from.x, to.y - from.y) > slack) this.#does ??= 'move';
    if (!this.#does) return;
    this.#from = to;
    const scale = this.#does === 'zoom' ? clamp((this.scale * to.apart) / from.apart, 1, most) : this.scale;
    const by = scale / this.scale;
    const x = (to.x - left) / width - ((from.x - left) / width - this.#left) * by;
    const y = (to.y - top) / height - ((from.y - top) / height - this.#top) * by;
    Object.assign(this, { scale });
    [this.#left, this.#top] = [clamp(x, 1 - scale, 0), clamp(y, 1 - scale, 0)];
    this.surface.querySelector('.zoomed').style.transform =
      `translate(${this.#left * 100}%, ${this.#top * 100}%) scale(${scale})`;
    if (this.#does === 'move') this.#scroll(to, (this.#left - x) * width, (this.#top - y) * height);
  }

  // scroll scrolls the page by what the picture could not move, or the view of a person who only looks.
  #scroll({ x, y }, deltaX, deltaY) {
    const { control: { you }, input, picture: { meta } = {} } = this.view;
    if (!you) return window.scrollBy(deltaX, deltaY);
    if (!meta || !(deltaX || deltaY)) return;
    const by = meta.deviceWidth / this.surface.clientWidth / this.scale;
    input.scroll({ clientX: x, clientY: y }, deltaX * by, deltaY * by);
  }
}
