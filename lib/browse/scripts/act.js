// What an element needs before it is acted on, and what cannot be done by input
// events.

// frame waits for the next frame and says whether there was one: pages that are not
// painted have none.
const frame = () => new Promise((done) => {
  const timer = setTimeout(done, 100, false)
  requestAnimationFrame(() => { clearTimeout(timer); done(true) })
})

// mostUnpainted is how often a page without frames is looked at before it is taken for
// one that is not painted, in which nothing moves: a busy machine has none for a while.
const mostUnpainted = 5

const sleep = (ms) => new Promise((done) => setTimeout(done, ms))

// topAt is the innermost element at a point of the viewport.
function topAt(x, y) {
  let el = document.elementFromPoint(x, y)
  while (el?.shadowRoot) {
    const inner = el.shadowRoot.elementFromPoint(x, y)
    if (!inner) break
    if (inner === el) return slotAt(el, x, y) ?? el
    el = inner
  }
  return el
}

// slotAt is the element of a shadow root that shows a text of its host at a point:
// for the browser, the text is the host's.
function slotAt(host, x, y) {
  const shows = (slot) => slot.assignedNodes().some((n) => n.nodeType === Node.TEXT_NODE && text(n.data))
  return host.shadowRoot.elementsFromPoint(x, y).find((el) => el.getRootNode() === host.shadowRoot &&
    [...el.querySelectorAll('slot')].some(shows))
}

const isInside = (el, outer) => {
  for (let e = el; e; e = flatParent(e)) if (e === outer) return true
  return false
}

// takesClicks selects the elements in a label whose clicks are not the label's.
const takesClicks = 'a[href], area[href], audio[controls], button, details, iframe, input, select, textarea, ' +
  'video[controls]'

// receives returns whether a click on the element at the point is one on el: it is in
// it, or in its label, or el is in its label.
function receives(el, hit) {
  if (isInside(hit, el)) return true
  const label = hit.closest?.('label')
  if (label?.control && isInside(label.control, el)) return !label.contains(hit.closest(takesClicks))
  const own = el.closest('label')
  return !!own?.control && own.control === hit
}

// pointIn returns where to click an element: the middle of its first box, as far as it
// is in the viewport. It is null if none of it is.
function pointIn(el) {
  for (const r of el.getClientRects()) {
    const left = Math.max(r.left, 0), right = Math.min(r.right, innerWidth)
    const top = Math.max(r.top, 0), bottom = Math.min(r.bottom, innerHeight)
    if (right - left >= 1 && bottom - top >= 1) return { x: (left + right) / 2, y: (top + bottom) / 2 }
  }
  return null
}

// pointOf returns where to click a box of an element, and what is hit there. In a label, of which
// a link may have the middle, it is the first of some places that the element receives.
function pointOf(el, box) {
  const middle = pointIn(box)
  if (!middle || box === el) return middle && { point: middle, hit: topAt(middle.x, middle.y) }
  const r = box.getBoundingClientRect()
  const all = [middle, ...[0.1, 0.9, 0.3, 0.7].map((k) => ({ x: r.left + k * r.width, y: middle.y }))]
    .map((point) => ({ point, hit: topAt(point.x, point.y) }))
  return all.find(({ hit }) => hit && receives(el, hit)) ?? all[0]
}

// controlOf is the control that a label is for, or the element itself.
const controlOf = (el) => (el.localName === 'label' && el.control) || el

const isEditable = (el) => el.isContentEditable || ['input', 'textarea', 'select'].includes(el.localName) ||
  ['textbox', 'searchbox', 'combobox', 'spinbutton'].includes(roleOf(el))

const alignments = ['nearest', 'center', 'end', 'start']

// ready waits until an element is attached, visible, stable, enabled, in the
// viewport and not covered, as far as needs says, and returns where it is. When
// time is up it throws a Fault that says what was missing.
async function ready({ target, needs, ms }) {
  const end = performance.now() + ms
  const tries = { unpainted: 0, moving: 0, scrolled: 0, boxes: 0, covered: false }
  let missing = ''
  for (let n = 0; ; n++) {
    const el = only(target)
    if (!el) missing = `nothing matches ${JSON.stringify(target)}`
    else {
      if (needs.enabled && el.matches('select option')) {
        throw new Fault(`${describe(el)} is an option of ${describe(el.closest('select'))}: ` +
          'browser_select_option chooses it there')
      }
      const got = await tryReady(el, needs, tries)
      if (got.point || got.ok) {
        if (got.moves && needs.watch) watchPress(el)
        canvas = needs.point && el.localName === 'canvas' && { el, was: pictureOf(el) }
        return {
          ...got.point, what: describe(el), moves: !!got.moves, downloads: !!el.closest('a[download]'), frame: place(),
          canvas: !!canvas?.was,
        }
      }
      missing = got.missing
    }
    if (performance.now() > end) throw new Fault(missing)
    await (n < 3 ? frame() : sleep(n < 20 ? 50 : 200))
  }
}

// canvas is the one that is acted on, with its picture.
let canvas

// pictureOf is the picture of a canvas, undefined if it has some of another site.
function pictureOf(el) {
  try {
    return el.toDataURL()
  } catch {
    return undefined
  }
}

// drew says whether the canvas that was acted on has another picture now.
const drew = () => pictureOf(canvas.el) !== canvas.was

// tryReady looks once. Where something covers the element, the next of its boxes is tried, and
// after the last one it is scrolled to another place of the viewport.
async function tryReady(el, needs, tries) {
  const what = describe(el)
  if (needs.point || needs.enabled) refuseInert(el)
  const boxes = boxesOf(el)
  if (!boxes.length) return { missing: `${what} is not visible` }
  if (needs.enabled && isDisabled(el)) return { missing: `${what} is disabled` }
  if (needs.editable) {
    const to = controlOf(el)
    if (!isEditable(to)) {
      throw new Fault(`${what} is not an input, a select, a text area or another editable element` +
        (roleOf(el) === 'iframe' ? ': browser_snapshot shows those in it, which have refs of their own' : ''))
    }
    if (to.readOnly || ariaFlag(to, 'readonly') === 'true') return { missing: `${describe(to)} is read-only` }
  }
  if (!needs.point) return { ok: true }
  const box = boxes[tries.boxes % boxes.length]
  if (!pointIn(box) || tries.covered) {
    const at = alignments[tries.scrolled++ % alignments.length]
    box.scrollIntoView({ block: at, inline: at, behavior: 'instant' })
    tries.covered = false
  }
  const before = box.getBoundingClientRect()
  const painted = await frame()
  if (!el.isConnected) return { missing: `${what} was removed from the page` }
  if (!painted && tries.unpainted++ < mostUnpainted) return { missing: `${what} is not painted` }
  const motion = motionOf(box, before, tries)
  if (motion === 'on') return { missing: `${what} does not stop moving` }
  const at = pointOf(el, box)
  if (at && (!needs.hit || at.hit && receives(el, at.hit))) return { point: at.point, moves: motion === 'always' }
  tries.covered = ++tries.boxes % boxes.length === 0
  if (!at) return { missing: `${what} cannot be scrolled into view` }
  return { missing: at.hit ? `${what} is covered by ${describe(at.hit)}` : `${what} cannot be clicked there` }
}

// innerOrigin is where the document in an iframe begins.
function innerOrigin({ target }) {
  const el = only(target)
  const r = el.getBoundingClientRect(), style = getComputedStyle(el)
  return {
    x: r.x + el.clientLeft + parseFloat(style.paddingLeft), y: r.y + el.clientTop + parseFloat(style.paddingTop),
  }
}

// valueForms are the types of inputs whose value is set as a whole, each with an example of one.
const valueForms = {
  color: '#ff8800', date: '2026-01-31', 'datetime-local': '2026-01-31T13:30', month: '2026-01', range: '', time: '13:30',
  week: '2026-W05',
}

// madeOf returns what an input makes of a value, null if it refuses it. The input itself keeps
// what it has.
function madeOf(el, value) {
  const probe = el.cloneNode()
  probe.value = value
  const made = probe.value
  switch (el.getAttribute('type')?.toLowerCase()) {
    case 'color': return made !== '#000000' || value === made ? made : null
    case 'range': return value.trim() && Number(value) === Number(made) ? made : null
    // Browsers that do not know these two take any text.
    case 'month': return !value || /^\d{4,}-(0[1-9]|1[0-2])$/.test(value) ? made : null
    case 'week': return !value || /^\d{4,}-W(0[1-9]|[1-4]\d|5[0-3])$/.test(value) ? made : null
  }
  return made || !value ? made : null
}

// refusal returns the fault of an input that does not take a value.
function refusal(el, value) {
  const type = el.getAttribute('type').toLowerCase()
  const wants = type === 'range'
    ? `numbers from ${el.min || 0} to ${el.max || 100} in steps of ${el.step || 1}` : `values such as ${valueForms[type]}`
  return new Fault(`${JSON.stringify(value)} is not a value of an input of the type ${type}: ${describe(el)} takes ${wants}`)
}

// fill prepares an editable element for text that is inserted: it has the focus,
// and what it has is selected. It returns false if nothing is to be inserted any
// more; with insert, it has inserted it.
function fill({ target, value, insert }) {
  const el = controlOf(only(target))
  if (el.localName === 'select') throw new Fault(`${describe(el)} is a select: browser_select_option chooses from it`)
  if (el.localName === 'input') {
    if (['checkbox', 'radio', 'file', 'button', 'submit', 'reset', 'image'].includes(el.type)) {
      throw new Fault(`${describe(el)} is an input of the type ${el.type}, which takes no text`)
    }
    if (el.type === 'number' && madeOf(el, value.trim()) === null) {
      throw new Fault(`${JSON.stringify(value)} is not a number, and ${describe(el)} takes only numbers`)
    }
    if (Object.hasOwn(valueForms, el.getAttribute('type')?.toLowerCase())) {
      const made = madeOf(el, value)
      if (made === null) throw refusal(el, value)
      beginTyping(el, false)
      el.value = made
      changed(el)
      typing.took = true
      return false
    }
  }
  startTyping(el, false)
  if (!value && el.value === '') return false
  if (!insert) return true
  document.execCommand(value ? 'insertText' : 'delete', false, value)
  return false
}

function changed(el) {
  el.dispatchEvent(new Event('input', { bubbles: true, composed: true }))
  el.dispatchEvent(new Event('change', { bubbles: true }))
}

// choose selects options by their label or value, and returns the labels.
function choose({ target, values }) {
  const el = controlOf(only(target))
  if (el.localName !== 'select') throw new Fault(`${describe(el)} is not a select: ${insteadOfChoosing(el)}`)
  if (!values.length && !el.multiple) throw new Fault(`${describe(el)} takes one value, and values is empty`)
  if (values.length > 1 && !el.multiple) throw new Fault(`${describe(el)} takes one value, not ${values.length}`)
  const wanted = values.map((v) => optionFor(el, v))
  el.focus()
  for (const o of el.options) o.selected = wanted.includes(o)
  changed(el)
  return wanted.map((o) => text(o.label))
}

// optionFor returns the option of a select that an agent means: it sees the labels, and values
// only where an error names them.
function optionFor(el, v) {
  const options = [...el.options], same = options.filter((o) => text(o.label) === text(v))
  const found = same.length ? same : options.filter((o) => o.value === v)
  if (!found.length) {
    const some = options.slice(0, 20).map((o) => JSON.stringify(text(o.label))).join(', ')
    throw new Fault(`${describe(el)} has no option ${JSON.stringify(v)}: there are ${some}`)
  }
  const able = found.filter((o) => !isDisabled(o))
  if (!able.length) throw new Fault(`the option ${JSON.stringify(v)} of ${describe(el)} is disabled`)
  const option = able.find((o) => o.value === v) ?? able[0]
  if (option.value !== v && able.some((o) => o.value !== option.value)) {
    const values = able.map((o) => JSON.stringify(o.value) + groupOf(o)).join(', ')
    throw new Fault(`${describe(el)} has ${able.length} options ${JSON.stringify(v)}: give the value of one, ${values}`)
  }
  return option
}

// groupOf returns the words for the group of an option, '' if it is in none.
function groupOf(option) {
  const group = option.closest('optgroup')
  return group ? ` (in ${JSON.stringify(text(group.label))})` : ''
}

// insteadOfChoosing returns what to do with an element that is not a select.
function insteadOfChoosing(el) {
  const takesText = el.localName === 'input' && !el.readOnly || el.isContentEditable
  if (!takesText) return 'click it, and then its option'
  return 'browser_type types into it' + (el.list ? '' : ', and browser_click chooses from what it then shows')
}

// checked is the state of a checkbox or a radio button.
function checked({ target }) {
  const el = controlOf(only(target))
  const state = isChecked(el, roleOf(el))
  if (state === undefined) throw new Fault(`${describe(el)} is not a checkbox or a radio button`)
  return state === true
}

let dropInput // has the files that drop takes

// takeFiles makes the input that the files of the next drop are put into.
function takeFiles() {
  dropInput = document.createElement('input')
  dropInput.type = 'file'
  dropInput.multiple = true
  return dropInput
}

// drop drops the files and data on an element by events of ours: Chrome would open a
// file that the page does not take.
function drop({ target, x, y, data }) {
  const el = only(target)
  const dataTransfer = new DataTransfer()
  for (const file of dropInput.files) dataTransfer.items.add(file)
  for (const [type, value] of Object.entries(data ?? {})) dataTransfer.setData(type, value)
  dropInput = undefined
  const hit = topAt(x, y)
  const to = hit && isInside(hit, el) ? hit : el
  const send = (type) => !to.dispatchEvent(new DragEvent(type,
    { bubbles: true, cancelable: true, composed: true, clientX: x, clientY: y, dataTransfer }))
  const entered = send('dragenter')
  if (!send('dragover') && !entered) throw new Fault(`${describe(el)} takes nothing that is dropped on it`)
  send('drop')
}

// box is where an element is in the document, in CSS pixels.
function box({ target }) {
  const el = only(target)
  el.scrollIntoView({ block: 'nearest', inline: 'nearest', behavior: 'instant' })
  const r = el.getBoundingClientRect()
  return { x: r.x, y: r.y, width: r.width, height: r.height, what: describe(el) }
}

// ways are the directions of scrolling.
const ways = { up: [0, -1], down: [0, 1], left: [-1, 0], right: [1, 0], top: [0, -1], bottom: [0, 1] }

// scroll scrolls an element into view; in a direction, what is around it or else around the middle of the viewport, by
// so many pixels or by most of what is seen of it. It returns what has moved, from where, to where, and how far it can.
async function scroll({ target, direction, pixels }) {
  const el = target === undefined ? null : only(target)
  if (el && !direction) {
    el.scrollIntoView({ block: 'center', inline: 'nearest', behavior: 'instant' })
    await frame()
    return { what: describe(el), seen: !!pointIn(el) }
  }
  const [x, y] = ways[direction], page = document.scrollingElement ?? rootOf(document)
  const room = (e) => (x ? e.scrollWidth - e.clientWidth : e.scrollHeight - e.clientHeight)
  const scrolls = (e) => e === page || room(e) > 0 &&
    /auto|scroll/.test(getComputedStyle(e)[x ? 'overflowX' : 'overflowY'])
  let box = el ?? topAt(innerWidth / 2, innerHeight / 2)
  while (box && !scrolls(box)) box = flatParent(box)
  box ??= page
  const at = () => Math.round(x ? box.scrollLeft : box.scrollTop), from = at()
  const by = ['top', 'bottom'].includes(direction) ? room(box) : pixels ?? 0.9 * (x ? box.clientWidth : box.clientHeight)
  box.scrollBy({ left: x * by, top: y * by, behavior: 'instant' })
  await frame()
  return { what: box === page ? 'the page' : describe(box), from, at: at(), room: room(box) }
}

// hasText says whether a text is visible in the page.
function hasText({ want }) {
  const root = rootOf(document), t = root && textsIn(root)
  return !!t && holders(t, { text: text(want) }).some(({ i }) => isVisible(t.els[i]))
}

// settle returns after the page has had the time to handle an input and to paint.
async function settle() {
  await frame()
  await sleep(0)
}

// rest returns once the document and its address have not changed for some time.
function rest({ still, most }) {
  return new Promise((done) => {
    let at = location.href, timer
    const last = setTimeout(end, most)
    const observer = new MutationObserver(again)
    observer.observe(document, { subtree: true, childList: true, characterData: true, attributes: true })
    again()
    function again() {
      clearTimeout(timer)
      timer = setTimeout(() => {
        if (location.href === at) return end()
        at = location.href
        again()
      }, still)
    }
    function end() {
      observer.disconnect()
      clearTimeout(timer)
      clearTimeout(last)
      done()
    }
  })
}

// scale makes a picture smaller: data in base64, of a type.
async function scale({ data, type, by }) {
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0))
  const whole = await createImageBitmap(new Blob([bytes]))
  const [w, h] = [whole.width, whole.height].map((side) => Math.max(1, Math.floor(side * by)))
  const canvas = new OffscreenCanvas(w, h), context = canvas.getContext('2d')
  context.imageSmoothingQuality = 'high'
  context.drawImage(whole, 0, 0, w, h)
  const reader = new FileReader(), read = new Promise((done) => reader.addEventListener('loadend', done))
  reader.readAsDataURL(await canvas.convertToBlob({ type, quality: 0.9 }))
  await read
  return reader.result.slice(reader.result.indexOf(',') + 1)
}

// originOf is the origin of the document that has an element.
const originOf = ({ target }) => only(target) && origin

// run calls one of the functions here and returns its answer, or its fault. It has no effect in a document of another
// origin than the one that is given.
async function run(name, args) {
  try {
    if (args?.origin && args.origin !== origin) throw new Fault('the page was replaced by another one of ' + origin)
    return { value: await api[name](args) }
  } catch (e) {
    if (e instanceof Fault) return { fault: e.message }
    throw e
  }
}

const api = {
  snapshot, html, dom, ready, missed, innerOrigin, fill, choose, checked, focus, box, scroll, hasText, settle, rest, page, scale,
  takeFiles, drop, identify, holding, items, setItem, valueNow, missing, locator,
  usableFrame, drew, keeps, originOf, typed, entered, endTyping,
  element: ({ target }) => only(target), count: ({ target }) => all(target).length,
}
globalThis.btools = { run, api }
