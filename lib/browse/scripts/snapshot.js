// The snapshot: what an agent has to know of a page, as an indented outline.

const refs = new Map() // the number of a ref to a WeakRef of its element
const numbers = new WeakMap() // an element to the number of its ref

function refOf(el, state) {
  let n = numbers.get(el)
  if (n === undefined) {
    n = state.next++
    if (refs.size >= forgetAt) forget()
    numbers.set(el, n)
    refs.set(n, new WeakRef(el))
  }
  return state.prefix + 'e' + n
}

const fewRefs = 50000
let forgetAt = fewRefs

// forget drops the refs of elements that are not in the page any more. It looks
// again when there are twice as many as it kept: of a page with more elements than
// that, each new ref would cost a look at all of them else.
function forget() {
  for (const [n, ref] of refs) if (!ref.deref()?.isConnected) refs.delete(n)
  forgetAt = Math.max(fewRefs, 2 * refs.size)
}

// elementOf is the element of a ref.
function elementOf(n) {
  const el = refs.get(n)?.deref()
  return el?.isConnected ? el : null
}

const atomic = new Set(['img', 'option', 'separator', 'slider', 'progressbar', 'meter', 'spinbutton', 'scrollbar'])

// withoutRef are roles whose elements are seldom acted on: they have a ref only if
// they can be clicked.
const withoutRef = new Set(['rowgroup', 'strong', 'emphasis', 'paragraph', 'code', 'time', 'subscript', 'superscript',
  'deletion', 'insertion', 'mark', 'caption'])

// nodesOf are the nodes of an element: lines of the outline, {role, name, states,
// hasRef, url, children}, where children are nodes and texts.
function nodesOf(el, state, inherits) {
  if (isHiddenFromAria(el) || !isRendered(el)) return []
  if (isMarkedInert(el) && !state.named) {
    state.inert ||= isVisible(el) && !!text(el.innerText ?? '')
    return []
  }
  if (state.seen++ % 50 === 0 && performance.now() > state.end) state.cut ||= state.seen
  if (state.cut) return []
  const style = getComputedStyle(el)
  const visible = style.visibility === 'visible'
  const role = roleOf(el)
  const clickable = style.cursor === 'pointer' && !inherits
  const childInherits = style.cursor === 'pointer'
  if (el.shadowRoot) state.pseudo = true
  const before = state.pseudo && pseudo(el, '::before'), after = state.pseudo && pseudo(el, '::after')
  const children = []
  const isAtom = atomic.has(role) || el.localName === 'iframe' || el.localName === 'select' && role === 'combobox'
  const isField = el.localName === 'input' || el.localName === 'textarea'
  if (el.localName === 'label') children.push(...hiddenControl(el, state))
  if (before) children.push(before)
  if (el.localName === 'select') {
    for (const option of el.querySelectorAll('option')) {
      if (!option.hidden) children.push(optionNode(option, state))
    }
  } else if (!isAtom && !isField) {
    const closed = el.localName === 'details' && !el.open
    eachChild(el, (child) => {
      if (closed && child.localName !== 'summary') return
      if (child.nodeType === Node.TEXT_NODE) {
        if (visible || el.localName === 'slot') children.push(child.data)
      } else if (child.nodeType === Node.ELEMENT_NODE) {
        if (child.localName === 'br') children.push(' ')
        else for (const n of nodesIn(child, state, childInherits)) children.push(n)
      }
    })
  }
  if (after) children.push(after)
  const begins = typeof children[0] === 'string', ends = typeof children[children.length - 1] === 'string'
  if (visible && (begins || ends) && !['inline', 'contents'].includes(style.display)) {
    if (begins) children.unshift(' ') // the text of a block does not run into its neighbours'
    if (ends) children.push(' ')
  }
  const joined = el.localName === 'label' ? withoutName(el, join(children)) : join(children)
  if (el.localName === 'slot' || role === 'presentation' || !visible) return joined
  return wrap(el, role, clickable, joined, state, style)
}

// nodesIn are the nodes of an element. A form hides what it has itself behind the inputs
// with those names: one that cannot be read does not hide the rest of the page.
function nodesIn(el, state, inherits) {
  try {
    return nodesOf(el, state, inherits)
  } catch (e) {
    if (e instanceof TypeError && el instanceof HTMLFormElement) return [' (a form that cannot be read) ']
    throw e
  }
}

// withoutName are the children of a label without its text, if that is the name of the field that it is for.
function withoutName(label, children) {
  const el = label.control, said = text(children.filter((c) => typeof c === 'string').join(''))
  if (!el || !said || !isRendered(el) || said !== nameOf(el, roleOf(el))) return children
  return children.filter((c) => typeof c !== 'string')
}

// hiddenControl returns the node of the input that is not shown itself and that a label, the first
// one in view, is clicked for.
function hiddenControl(label, state) {
  const el = label.control
  if (!el || isShown(el) || isHiddenFromAria(el)) return []
  const first = labelBoxes(el)[0]
  return first && label.contains(first) ? wrap(el, roleOf(el), false, [], state, getComputedStyle(el)) : []
}

// addsText says whether a rule may add text before or after an element: to ask each one is
// a third of the work.
function addsText() {
  const adds = (rule) => /:(before|after)|^@import/.test(
    rule.cssRules?.length ? rule.cssText : rule.selectorText ?? rule.cssText)
  try {
    return [...document.styleSheets, ...document.adoptedStyleSheets].some((sheet) => [...sheet.cssRules].some(adds))
  } catch {
    return true // of another site
  }
}

// pseudo is the text that a style adds before or after an element.
function pseudo(el, which) {
  const { content } = getComputedStyle(el, which)
  if (content[0] !== '"') return '' // none, normal, or an image
  const said = content.replace(/^"((?:[^"\\]|\\.)*)".*$/s, '$1').replace(/\\(.)/g, '$1')
  return /[\p{L}\p{N}]/u.test(said) ? said : '' // a letter of an icon font is no text
}

function optionNode(option, state) {
  const states = []
  if (option.selected) states.push('selected')
  if (isDisabled(option)) states.push('disabled')
  const name = clip(text(option.label), mostOfName)
  return { role: 'option', name, states, children: [], el: option, hasRef: false, interactive: true }
}

// join makes one text of texts that follow each other.
function join(children) {
  if (children.length < 2) return children
  const all = []
  for (const child of children) {
    const last = all.length - 1
    if (typeof child === 'string' && typeof all[last] === 'string') all[last] += child
    else all.push(child)
  }
  return all
}

// wrap makes the node of an element. An element that means nothing by itself, and
// has not several children to hold together, gives its children to its parent.
function wrap(el, role, clickable, children, state, style) {
  const meaning = children.filter((c) => !isBlank(c))
  const isFocus = el === state.active && el.localName !== 'body'
  const interactive = clickable || isFocus || el.draggable && el.localName !== 'img' && el.localName !== 'a' ||
    state.interactive && isInteractive(el, role)
  const acts = interactive || role === 'generic' && isFocusable(el) && el.localName !== 'body'
  const isNamed = !!(el.getAttribute('aria-label') || el.getAttribute('aria-labelledby'))
  if (role === 'generic' && !acts && !isNamed) {
    if (el.localName === 'body' || el.localName === 'html' || style.display.startsWith('inline') ||
      style.display === 'contents') return children
    if (meaning.length === 0) return children
    if (meaning.length === 1 && typeof meaning[0] !== 'string') return children
  }
  const name = notNameable.has(role) && !isNamed ? '' : nameOf(el, role)
  if (role === 'img' && !name && !acts) return el.localName === 'svg' ? [] : [line(el, role, '', [])]
  const value = valueOf(el, role)
  const n = line(el, role, name, meaning)
  n.interactive = interactive
  if (isFocus) n.states.splice(n.states.filter((s) => /^(checked|disabled|expanded)/.test(s)).length, 0, 'active')
  if (withoutRef.has(role) && !acts) n.hasRef = false
  if (clickable && !['link', 'button'].includes(role)) n.states.push('cursor=pointer')
  if (value !== undefined && !isBlank(value)) n.children = [text(value)]
  if (name && isSaid(n.children, name)) n.children = []
  else if (cells.has(role) && n.children.some((c) => typeof c !== 'string') && !hasOwnName(el)) n.name = ''
  if (role === 'link') n.url = shortURL(el)
  const placeholder = el.getAttribute('placeholder')
  if (placeholder && text(placeholder) !== name && !value) n.placeholder = clip(text(placeholder), mostOfName)
  if (el.localName === 'iframe' || el.localName === 'frame') {
    n.frame = true
  }
  return [n]
}

const fields = new Set(['combobox', 'searchbox', 'slider', 'spinbutton', 'textbox'])

const interactiveRoles = new Set([...fields, 'button', 'checkbox', 'link', 'listbox', 'menuitem', 'menuitemcheckbox',
  'menuitemradio', 'option', 'radio', 'switch', 'tab', 'treeitem'])

// isInteractive says whether an element is one to act on: its role says so, or the keyboard
// reaches it, or its HTML handles clicks.
function isInteractive(el, role) {
  if (interactiveRoles.has(role)) return true
  if (el.localName === 'body') return false
  return el.tabIndex >= 0 || el.hasAttribute('onclick') || el.isContentEditable && !parentOf(el)?.isContentEditable
}

// cells are named by what is in them, which is shown there.
const cells = new Set(['cell', 'columnheader', 'gridcell', 'rowheader'])

const wrappers = new Set(['generic', 'paragraph', 'strong', 'emphasis', 'code', 'mark', 'time', 'subscript',
  'superscript'])

// isSaid says whether a name says all that is in the children.
function isSaid(children, name) {
  if (children.length === 1 && children[0] === name) return true
  return plain(children)?.replace(/\s/g, '') === name.replace(/\s/g, '')
}

// plain is the text of children that nothing but text can be said of, else undefined.
function plain(children) {
  let all = ''
  for (const c of children) {
    const said = typeof c === 'string' ? c : wrappers.has(c.role) && !c.states.length && !c.name ? plain(c.children)
      : undefined
    if (said === undefined) return undefined
    all += said
  }
  return all
}

function line(el, role, name, children) {
  return {
    role, name, states: statesOf(el, role), children: children.map((c) => typeof c === 'string' ? text(c) : c), el,
    hasRef: true,
  }
}

function shortURL(el) {
  const url = el.getAttribute('href') ?? ''
  return url.startsWith('data:') || url.startsWith('javascript:') ? clip(url, 20) : clip(url, 300)
}

// quoteText is a text on a line of its own, in quotes where it could be read as
// something else.
function quoteText(s) {
  return /^[-"'\[\]{}&*!|>%@`#?:,/]|: |:$| #|^\s|\s$|^(true|false|null|~|[\d.+-].*)$/i.test(s) ? JSON.stringify(s) : s
}

// print appends the lines of nodes.
function print(nodes, depth, out, state) {
  const pad = '  '.repeat(depth)
  for (const node of nodes) {
    if (typeof node === 'string') {
      out.push(pad + '- text: ' + quoteText(clip(depth ? node : text(node), state.most)))
      continue
    }
    const head = pad + lineHead(node, state)
    const { children } = node
    const cut = state.depth !== undefined && depth >= state.depth && children.some((c) => typeof c !== 'string')
    const props = []
    if (node.url) props.push('/url: ' + quoteURL(node.url))
    if (node.placeholder) props.push('/placeholder: ' + quoteText(node.placeholder))
    if (node.frame) state.at.push({ line: out.length, depth: depth + 1, number: numbers.get(node.el) })
    if (!props.length && children.length === 1 && typeof children[0] === 'string') {
      out.push(head + ': ' + quoteText(clip(children[0], state.most)))
      continue
    }
    if (!props.length && !children.length) {
      out.push(head)
      continue
    }
    out.push(head + ':')
    for (const p of props) out.push(pad + '  - ' + p)
    if (cut) out.push(pad + '  - …')
    else print(children, depth + 1, out, state)
  }
}

// lineHead is the beginning of the line of a node.
function lineHead(node, state) {
  let head = '- ' + node.role
  if (node.name) head += ' ' + JSON.stringify(node.name)
  for (const s of node.states) head += ' [' + s + ']'
  if (node.hasRef) head += ' [ref=' + refOf(node.el, state) + ']'
  if (state.boxes && node.el) {
    const r = node.el.getBoundingClientRect()
    head += ' [box=' + [r.x, r.y, r.width, r.height].map(Math.round).join(',') + ']'
  }
  return head
}

// printInteractive appends a line for each node that is one to act on, and for each frame,
// at one level. A field has its value there, and an element without a name its text.
function printInteractive(nodes, depth, out, state) {
  if (depth > (state.depth ?? Infinity)) return
  for (const node of nodes) {
    if (typeof node === 'string') continue
    if (node.interactive || node.frame || state.headings && node.role === 'heading') {
      const holds = !node.name || fields.has(node.role) || node.el.localName === 'input'
      const said = holds ? clip(textIn(node.children), mostOfName) : ''
      out.push(lineHead(node, state) + (said && ': ' + quoteText(said)))
    }
    if (node.frame) state.at.push({ line: out.length - 1, depth: 0, number: numbers.get(node.el) })
    printInteractive(node.children, depth + 1, out, state)
  }
}

// textIn is the text in nodes, without those that have lines of their own.
function textIn(nodes) {
  return text(nodes.map((n) => typeof n === 'string' ? n : n.interactive ? '' : n.name || textIn(n.children)).join(' '))
}

const quoteURL = (s) => (/[\s"]/.test(s) ? JSON.stringify(s) : s)

// focused returns the element of a document that has its focus, in shadow roots too.
function focused(doc = document) {
  let el = activeOf(doc)
  while (el?.shadowRoot?.activeElement) el = el.shadowRoot.activeElement
  return el
}

// snapshot is the outline of the document, or of one element, as lines, with the
// lines after which those of frames belong. Refs are numbered from next. What is inert is
// left out, unless the element is named, and after ms the rest of the document. Joined, the
// lines are one text, which Chrome hands on faster.
function snapshot({ target, next, prefix, depth, boxes, interactive, headings, whole, joined, ms }) {
  const state = {
    next, prefix, depth, boxes, interactive, headings, most: whole ? Infinity : 10000, at: [], active: focused(),
    end: performance.now() + ms, seen: 0, cut: 0, pseudo: addsText(), named: !!target, inert: false,
  }
  const dialog = target ? null : modalDialog()
  const root = target ? only(target) : dialog ?? bodyOf(document) ?? rootOf(document)
  const lines = []
  const nodes = root ? nodesOf(root, state, false).filter((n) => !isBlank(n)) : []
  if (interactive) printInteractive(nodes, 0, lines, state)
  else print(nodes, 0, lines, state)
  if (dialog || state.inert) {
    lines.push(`# the rest is left out, for it is inert${dialog ? ` while the ${dialogName(dialog)} is open` : ''}: ` +
      'browser_snapshot with the target body shows it')
  }
  const all = joined && lines.length ? [lines.join('\n')] : lines
  return { lines: all, frames: state.at, next: state.next, cut: state.cut, page: page() }
}

const mostHolding = 20

// holding are the elements that hold a text that is visible, as lines.
function holding({ want, next, prefix }) {
  const state = { next, prefix }, t = textsIn(rootOf(document))
  const lines = holders(t, { text: text(want) }).filter(({ i }) => isVisible(t.els[i])).slice(0, mostHolding)
    .map(({ i, from }) => `- ${describe(t.els[i])} [ref=${refOf(t.els[i], state)}]: ` +
      quoteText(clip(read(t.all.slice(Math.max(t.begin[i], from - mostOfName), t.end[i]), ' '), 2 * mostOfName)))
  const frames = t.els.filter(isFrame).map((el) => {
    refOf(el, state)
    return { line: lines.length - 1, depth: 0, number: numbers.get(el) }
  })
  return { lines, frames, next: state.next }
}
