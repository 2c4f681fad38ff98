// A page as HTML for a text of it: what is shown, with shadow roots and slots in
// place. And its elements as lines.

const maxText = 8 << 20 // characters of a frame
const maxNested = 300 // elements in each other; readers of HTML take 512

const escapes = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' }
const escaped = (s) => (/[&<>"]/.test(s) ? s.replace(/[&<>"]/g, (c) => escapes[c]) : s)

const isVoid = new Set(['area', 'base', 'br', 'col', 'embed', 'hr', 'img', 'input', 'link', 'meta', 'source', 'track',
  'wbr'])
function theOne(target) {
  const el = only(target)
  if (!el) throw new Fault(`nothing matches ${JSON.stringify(target)}`)
  return el
}

const isFrame = (el) => el.localName === 'iframe' || el.localName === 'frame'

// htmlAttributes are an element's attributes, with whole addresses.
function htmlAttributes(el) {
  let all = ''
  for (const { name, value } of attributesOf(el)) {
    if (name === 'style' || name.startsWith('on') || value.startsWith('data:')) continue
    const whole = name === 'href' && tagOf(el) === 'a' && value[0] !== '#' ? el.href
      : name === 'src' && tagOf(el) === 'img' ? el.currentSrc || el.src : value
    if (whole.length <= 4000 && /^[\w:.-]+$/.test(name)) all += ` ${name}="${escaped(whole)}"`
  }
  return all
}

// html is the document, or one element, as parts of HTML, with the parts after
// which those of frames belong.
function html({ target, next }) {
  const state = { next, prefix: '' }
  const parts = [], frames = []
  const isInner = window !== window.top
  let size = 0, part = ''
  const add = (s) => {
    if ((size += s.length) <= maxText) part += s
  }
  const element = (el, nested) => {
    if (size > maxText || !isRendered(el)) return
    if (isFrame(el)) {
      refOf(el, state)
      add('<div>')
      parts.push(part)
      part = ''
      frames.push({ line: parts.length - 1, depth: 0, number: numbers.get(el) })
      add('</div>')
      return
    }
    const bare = tagOf(el) === 'slot' || nested > maxNested
    // A component is a block unless it is shown in a line.
    const name = tagOf(el) === 'body' && isInner ? 'div' : !tagOf(el).includes('-') ? tagOf(el)
      : getComputedStyle(el).display.startsWith('inline') ? 'span' : 'div'
    if (!bare) add(`<${name}${htmlAttributes(el)}>`)
    if (isVoid.has(name)) return
    if (name !== 'svg' && name !== 'textarea') children(el, nested + 1)
    if (!bare) add(`</${name}>`)
  }
  const children = (el, nested) => {
    let shown
    for (const child of flatChildren(el)) {
      if (child.nodeType === Node.ELEMENT_NODE) element(child, nested)
      else if (child.nodeType === Node.TEXT_NODE) {
        // The first is the faster one, and false of what has no box.
        shown ??= Element.prototype.checkVisibility.call(el, { visibilityProperty: true }) || tagOf(el) === 'slot' ||
          getComputedStyle(el).visibility === 'visible'
        if (shown) add(escaped(child.data))
      }
    }
  }
  if (target) element(theOne(target), 0)
  else if (isInner) element(bodyOf(document) ?? rootOf(document), 0)
  else {
    add('<html><head>')
    for (const el of headOf(document)?.querySelectorAll('title,meta,script[type="application/ld+json"]') ?? []) {
      if (el.outerHTML.length < 100000) add(el.outerHTML)
    }
    add('</head>')
    const body = bodyOf(document) ?? rootOf(document)
    if (body) element(body, 0)
    add('</html>')
  }
  parts.push(part)
  return { lines: parts, frames, next: state.next }
}

// dom are the elements below one, or of the document, a line for each.
function dom({ target, depth, next }) {
  const state = { next, prefix: '' }
  const lines = [], frames = []
  let size = 0
  const add = (level, s) => {
    if ((size += s.length) <= maxText) lines.push('  '.repeat(level) + s)
  }
  const open = (el) => {
    let all = '<' + tagOf(el)
    for (const { name, value } of attributesOf(el)) all += ` ${name}${value && `="${escaped(clip(value, 300))}"`}`
    return all + '>'
  }
  const visit = (el, level) => {
    const tag = open(el), close = isVoid.has(tagOf(el)) ? '' : `</${tagOf(el)}>`
    const nodes = [...childNodesOf(el)].filter((n) =>
      n.nodeType === Node.ELEMENT_NODE || n.nodeType === Node.TEXT_NODE && text(n.data))
    const inner = nodes.filter((n) => n.nodeType === Node.ELEMENT_NODE).length
    if (tagOf(el) === 'script' || tagOf(el) === 'style') {
      return add(level, tag + (el.textContent ? `… ${el.textContent.length} characters` : '') + close)
    }
    if (isFrame(el)) {
      refOf(el, state)
      add(level, tag + close)
      frames.push({ line: lines.length - 1, depth: level + 1, number: numbers.get(el) })
      return
    }
    if (!inner && !shadowOf(el)) {
      return add(level, tag + escaped(clip(text(nodes.map((n) => n.data).join(' ')), 1000)) + close)
    }
    if (depth !== undefined && level >= depth) {
      return add(level, `${tag}… ${Element.prototype.querySelectorAll.call(el, '*').length} elements${close}`)
    }
    add(level, tag)
    if (shadowOf(el)) {
      add(level + 1, '#shadow-root')
      each(shadowOf(el).childNodes, level + 2)
    }
    each(nodes, level + 1)
    add(level, close)
  }
  const each = (nodes, level) => {
    for (const n of nodes) {
      if (size > maxText) return
      if (n.nodeType === Node.ELEMENT_NODE) visit(n, level)
      else if (n.nodeType === Node.TEXT_NODE && text(n.data)) add(level, escaped(clip(text(n.data), 1000)))
    }
  }
  const root = target ? theOne(target) : rootOf(document)
  if (root) visit(root, 0)
  if (size > maxText) lines.push('…')
  return { lines, frames, next: state.next }
}
