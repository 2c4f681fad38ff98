// Elements that move: until they stand still, or are clicked as they move.

const sameBox = (a, b) => a.x === b.x && a.y === b.y && a.width === b.width && a.height === b.height

const geometry = /^(inset|left|top|right|bottom|transform|translate|scale|rotate|offset|margin|width|height|zoom)/

// animations yields those that move an element, or what it is in, at present.
function* animations(el) {
  for (let e = el; e; e = flatParent(e)) {
    for (const a of e.getAnimations()) {
      if (a.playState === 'running' &&
        a.effect?.getKeyframes().some((k) => Object.keys(k).some((name) => geometry.test(name)))) yield a
    }
  }
}

const lastTime = (animation) => animation.effect.getComputedTiming().endTime

// mostMoving is how often an element that a script moves is looked at before it is taken for one
// that always moves.
const mostMoving = 20

// motionOf returns how the box of an element moves, which was at a place a frame ago: 'still', 'on' as
// long as it is to be waited for, or 'always' if it does not end and its middle stays in it for a
// frame, so that a person can click it. The box alone does not tell: on a busy machine an animation
// that has been started stands still for some frames.
function motionOf(box, before, tries) {
  const now = box.getBoundingClientRect(), ends = [...animations(box)].map(lastTime)
  if (ends.some(isFinite)) return 'on'
  if (sameBox(before, now) && !ends.length) return 'still'
  const holds = (r, { x, y, width, height }) => x + width / 2 > r.left && x + width / 2 < r.right &&
    y + height / 2 > r.top && y + height / 2 < r.bottom
  const isSlow = holds(before, now) && holds(now, before)
  return isSlow && (ends.length || tries.moving++ >= mostMoving) ? 'always' : 'on'
}

const presses = ['pointerdown', 'mousedown', 'pointerup', 'mouseup', 'click', 'auxclick', 'contextmenu', 'dblclick']

let watched = null // the press on an element that moves

// watchPress keeps a press from what it hits in place of an element that moves.
function watchPress(el) {
  missed()
  const watch = watched = { el, hit: null, listen, timer: setTimeout(missed, 5000) }
  for (const type of presses) addEventListener(type, listen, true)
  function listen(e) {
    const [at] = e.composedPath()
    const isHit = at instanceof Element && receives(el, at)
    if (e.type === 'pointerdown' || e.type.endsWith('click')) watch.hit = isHit ? el : at
    if (watch.hit === el) return
    e.preventDefault()
    e.stopImmediatePropagation()
  }
}

// missed ends the watch on a press, and returns what it has hit in place of the element, '' if it
// has hit that.
function missed() {
  if (!watched) return ''
  const { el, hit, listen, timer } = watched
  watched = null
  clearTimeout(timer)
  for (const type of presses) removeEventListener(type, listen, true)
  return hit === el ? '' : hit instanceof Element ? describe(hit) : 'another place'
}
