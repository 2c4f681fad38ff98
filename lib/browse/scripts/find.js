// Elements by selector: CSS, text=, role=, label=, placeholder=, alt=, title=,
// testid=, xpath=, nth=, parts joined by >>, and Playwright's getBy… and locator
// calls. Open shadow roots are searched too.

// Fault is an error whose text is for the agent.
class Fault extends Error {}

// elementsIn are all elements below a root, shadow roots included.
function* elementsIn(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_ELEMENT)
  for (let el = walker.nextNode(); el; el = walker.nextNode()) {
    yield el
    if (el.shadowRoot) yield* elementsIn(el.shadowRoot)
  }
}

function* rootsIn(root) {
  yield root
  if (root.shadowRoot) yield* rootsIn(root.shadowRoot)
  for (const el of elementsIn(root)) if (el.shadowRoot) yield el.shadowRoot
}

// matcher says whether a text is the one that is looked for: a part of it in any
// case, all of it if it is quoted, or what a /regular expression/ matches.
function matcher(want, exact) {
  const w = wanted(want, exact)
  if (w.regex) return (s) => w.regex.test(s)
  if (w.exact) return (s) => s === w.text
  const lower = w.text.toLowerCase()
  return (s) => s.toLowerCase().includes(lower)
}

// wanted is what is looked for: a text, exact or not, or a regular expression.
function wanted(want, exact) {
  const regex = /^\/(.*)\/([dgimsuvy]*)$/s.exec(want)
  if (regex) return { regex: new RegExp(regex[1], regex[2].replace(/[gy]/g, '')) }
  const quoted = /^(["'])(.*)\1(i?)$/s.exec(want)
  return { text: text(quoted ? unescaped(quoted[2]) : want), exact: exact ?? (quoted ? !quoted[3] : false) }
}

// unescaped is a text in quotes without its backslashes.
const unescaped = (s) => s.replace(/\\(.)/gs, '$1')

// edge and wall stand for the beginning and the end of an element in the text of what is
// around it: a reader sees a space at a wall, and at an edge perhaps.
const edge = '\u0001', wall = '\u0002'

const inLine = new Set(('a abbr b bdi bdo big cite code data del dfn em font i ins kbd label mark nobr q rb rp rt ' +
  'ruby s samp slot small span strike strong sub sup time tt u var wbr').split(' '))

const edgeOf = (el) => (inLine.has(tagOf(el)) || tagOf(el).includes('-') ? edge : wall)

// textsIn is the text of a root, and which part of it each element has: elements are in
// the order of the document, each with its parent's index and the index after its last
// descendant.
function textsIn(root) {
  const els = [], begin = [], end = [], parent = [], after = [], pieces = []
  let size = 0
  const add = (s) => {
    pieces.push(s)
    size += s.length
  }
  const open = [] // the iterators of the elements that have begun
  const start = (el) => {
    add(edgeOf(el))
    open.push({ i: els.length, children: childrenOf(el)[Symbol.iterator]() })
    parent.push(open.length > 1 ? open[open.length - 2].i : -1)
    els.push(el)
    begin.push(size)
  }
  start(root)
  while (open.length) {
    const top = open[open.length - 1]
    const { value: node, done } = top.children.next()
    if (done) {
      end[top.i] = size
      after[top.i] = els.length
      add(edgeOf(els[top.i]))
      open.pop()
    } else if (typeof node === 'string') add(node)
    else if (node.nodeType === Node.TEXT_NODE) add(node.data)
    else if (node.nodeType === Node.ELEMENT_NODE && !neverShown.has(tagOf(node))) start(node)
  }
  return { all: pieces.join(''), els, begin, end, parent, after }
}

// childrenOf are the nodes and texts by which an element is found.
function childrenOf(el) {
  if (el.localName === 'input' && ['button', 'submit', 'reset'].includes(el.type)) return [el.value]
  return flatChildren(el)
}

const gap = edge + '\u200b\u00ad' // what may be there between two letters of a word
const toLiteral = (c) => c.replace(/[\\^$.*+?()[\]{}|/]/, '\\$&')

// placesOf are where a text is in another one, in any case unless it is to be exact:
// [begin, end] of each.
function placesOf(all, want, exact) {
  if (!want) return []
  const words = want.split(' ').map((word) => [...word].map(toLiteral).join(`[${gap}]*`))
  const re = new RegExp(words.join(`[\\s${gap}${wall}]+`), exact ? 'gu' : 'giu')
  const places = []
  for (let m; (m = re.exec(all)); re.lastIndex = m.index + 1) places.push([m.index, re.lastIndex])
  return places
}

// read is a part of a text as it is read, with a space at edges, or nothing.
const read = (part, between) => text(part.replaceAll(edge, between).replaceAll(wall, ' '))

const nothingIn = (t, from, to) => !read(t.all.slice(from, to), '')

// innermost are the elements with a text, without those around them.
function innermost(root, w) {
  const t = textsIn(root)
  const has = w.regex ? matched(t, w.regex) : holders(t, w).map(({ i }) => i)
  // The next one is in an element if it comes before the end of that.
  return has.filter((i, n) => !(has[n + 1] < t.after[i])).map((i) => t.els[i])
}

// holders are the elements that hold the places of a text, each with the first of them,
// in their order.
function holders(t, { text: want, exact }) {
  const found = new Map()
  let last = 0
  for (const [from, to] of placesOf(t.all, want, exact)) {
    while (t.begin[last + 1] <= from) last++ // the last one that has begun
    let i = last
    while (i >= 0 && t.end[i] < to) i = t.parent[i]
    if (i < 0 || exact && !(nothingIn(t, t.begin[i], from) && nothingIn(t, to, t.end[i]))) continue
    if (!found.has(i)) found.set(i, { i, from })
  }
  return [...found.values()].sort((a, b) => a.i - b.i)
}

// matched are the elements whose text a regular expression matches, and none in them.
function matched(t, regex) {
  const found = []
  let later = t.els.length // the first of those found, which are looked at from the last one
  for (let i = t.els.length - 1; i >= 0; i--) {
    if (later < t.after[i]) continue
    const part = t.all.slice(t.begin[i], t.end[i])
    const child = i + 1 // it has the same text if it is all that is in the element
    if (t.after[child] === t.after[i] && nothingIn(t, t.begin[i], t.begin[child]) &&
      nothingIn(t, t.end[child], t.end[i])) {
      continue
    }
    const spaced = read(part, ' ')
    if (regex.test(spaced) || part.includes(edge) && regex.test(read(part, ''))) found.push(later = i)
  }
  return found.reverse()
}

// ownText is the text by which an element is found.
const ownText = (el) => read(textsIn(el).all, ' ')

const topOf = (root) => (root === document ? rootOf(document) : root)

// byText are the innermost elements with a text.
const byText = (root, want) => (topOf(root) ? innermost(topOf(root), wanted(want)) : [])

// compounds splits a selector: for each of its alternatives, the compounds with the
// combinator before each, ' ' or '>'.
function compounds(css) {
  const token = /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\\.|\s*[>,]\s*|\s*[+~]\s*|\s+|[\s\S]/g
  const all = [[{ before: '', css: '' }]]
  let depth = 0
  for (const [t] of css.matchAll(token)) {
    const parts = all[all.length - 1], sign = t.trim()
    if ('([)]'.includes(t)) depth += '(['.includes(t) ? 1 : -1
    if (depth === 0 && sign === ',') all.push([{ before: '', css: '' }])
    else if (depth === 0 && (sign === '>' || sign === '')) parts.push({ before: sign || ' ', css: '' })
    else parts[parts.length - 1].css += t
  }
  return all
}

// acrossRoots are the elements of a selector whose compounds match in different shadow
// roots: x-menu button.
function acrossRoots(roots, css) {
  const outer = (el) => el.parentElement ?? el.getRootNode().host
  const fits = (el, parts, i) => {
    if (!el.matches(parts[i].css || '*')) return false
    if (i === 0) return true
    for (let up = outer(el); up; up = outer(up)) {
      if (fits(up, parts, i - 1)) return true
      if (parts[i].before === '>') return false
    }
    return false
  }
  const found = new Set()
  for (const parts of compounds(css)) {
    const last = parts.length - 1
    if (last === 0) continue
    for (const r of roots) {
      for (const el of r.querySelectorAll(parts[last].css || '*')) if (fits(el, parts, last)) found.add(el)
    }
  }
  return [...found]
}

// withText says of an element below a root whether it has a text: somewhere in it, or,
// for text and text-is, in none of the elements in it.
function withText(root, kind, want) {
  const w = wanted(want, kind === 'text-is'), top = topOf(root)
  if (!top) return () => false
  if (kind === 'has-text' && w.regex) return (el) => w.regex.test(ownText(el))
  if (kind !== 'has-text') {
    const found = new Set(innermost(top, w))
    return (el) => found.has(el)
  }
  const t = textsIn(top), found = new Set()
  for (let { i } of holders(t, w)) for (; i >= 0 && !found.has(t.els[i]); i = t.parent[i]) found.add(t.els[i])
  return (el) => found.has(el)
}

const filtering = /:(has-text|text-is|text|visible)(?:\(((?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^()"'])*)\))?$/

// byCSS takes :visible, :has-text(), :text() and :text-is() at a selector's end.
function byCSS(root, selector) {
  const filters = []
  let css = selector.trim()
  for (let m; (m = filtering.exec(css)); css = css.slice(0, m.index)) {
    if (m[1] === 'visible') {
      filters.push(isVisible)
      continue
    }
    filters.push(withText(root, m[1], (m[2] ?? '').trim().replace(/^(["'])(.*)\1$/s, '$2')))
  }
  const all = []
  const roots = [...rootsIn(root)]
  for (const r of roots) all.push(...r.querySelectorAll(css || '*'))
  if (roots.length > 1) all.push(...acrossRoots(roots, css).filter((el) => !all.includes(el)))
  return all.filter((el) => filters.every((f) => f(el)))
}

// attribute is a [name=value] of role=, whose value may be in quotes: "a \"b\""i.
const attribute = String.raw`\[\s*([\w-]+)\s*(?:=\s*` +
  String.raw`("(?:[^"\\]|\\.)*"i?|'(?:[^'\\]|\\.)*'i?|/(?:[^/\\]|\\.)*/[a-z]*|[^\]"'/][^\]]*?))?\s*\]`

// byRole takes role=button[name="Buy"][checked].
function byRole(root, spec) {
  const m = new RegExp(`^([\\w-]+)\\s*((?:${attribute}\\s*)*)$`, 's').exec(spec)
  if (!m) throw new Fault(`role=${spec} is not a role such as role=button[name="Buy"]`)
  const tests = []
  for (const [, key, value] of m[2].matchAll(new RegExp(attribute, 'gs'))) {
    if (key === 'name') tests.push((el, role) => matcher(value)(nameOf(el, role)))
    else {
      tests.push((el, role) => statesOf(el, role).some((s) =>
        value === undefined || value === 'true' ? s === key : s === key + '=' + value))
    }
  }
  const all = []
  for (const el of elementsIn(root)) {
    if (roleOf(el) === m[1] && (isShown(el) || labelBoxes(el).length) && tests.every((t) => t(el, m[1]))) all.push(el)
  }
  return all
}

function byAttribute(root, name, want) {
  const is = matcher(want)
  return [...elementsIn(root)].filter((el) => el.hasAttribute(name) && is(text(el.getAttribute(name))))
}

function byLabel(root, want) {
  const is = matcher(want)
  return [...elementsIn(root)].filter((el) => {
    if (el.hasAttribute('aria-label') && is(text(el.getAttribute('aria-label')))) return true
    return labelsOf(el).some((l) => is(ownText(l))) ||
      (el.hasAttribute('aria-labelledby') && is(nameOf(el, roleOf(el))))
  })
}

function byXPath(root, path) {
  const found = document.evaluate(path, root, null, XPathResult.ORDERED_NODE_SNAPSHOT_TYPE, null)
  return Array.from({ length: found.snapshotLength }, (_, i) => found.snapshotItem(i))
    .filter((n) => n.nodeType === Node.ELEMENT_NODE)
}

const engines = {
  css: byCSS, text: byText, role: byRole, label: byLabel, xpath: byXPath,
  placeholder: (root, want) => byAttribute(root, 'placeholder', want),
  alt: (root, want) => byAttribute(root, 'alt', want),
  title: (root, want) => byAttribute(root, 'title', want),
  testid: (root, want) => byAttribute(root, 'data-testid', JSON.stringify(want)),
  'data-testid': (root, want) => byAttribute(root, 'data-testid', JSON.stringify(want)),
  id: (root, want) => byCSS(root, '#' + CSS.escape(want)),
}

// splitParts splits a selector at >>, but not in quotes.
function splitParts(selector) {
  const parts = selector.match(/>>|(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?!>>)[\s\S])+/g) ?? []
  return parts.map((p) => p.trim()).filter((p) => p && p !== '>>')
}

// calls rewrites Playwright's calls as parts: getByRole('button', { name: 'Buy' }).
function calls(selector) {
  if (!/^(page\.)?(getBy|locator\()/.test(selector)) return null
  const parts = []
  let rest = selector.replace(/^page\./, '')
  while (rest) {
    const m = /^\.?(\w+)\(((?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`|\/(?:[^/\\]|\\.)*\/|[^()"'`])*)\)/s.exec(rest)
    if (!m) return null
    rest = rest.slice(m[0].length)
    const first = /^\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|`([^`]*)`|(\/.*?\/[a-z]*)|(-?\d+))?/s.exec(m[2])
    const escaped = first[1] ?? first[2] ?? first[3]
    const raw = escaped === undefined ? escaped : unescaped(escaped)
    const exact = /exact:\s*true/.test(m[2])
    const arg = raw !== undefined ? (exact ? JSON.stringify(raw) : raw) : first[4] ?? first[5] ?? ''
    switch (m[1]) {
      case 'getByRole': {
        let part = 'role=' + raw
        const name = /name:\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\/(?:[^/\\]|\\.)*\/[a-z]*)/s.exec(m[2])?.[1]
        if (name) part += `[name=${name}${exact || name[0] === '/' ? '' : 'i'}]`
        for (const [, k, v] of m[2].matchAll(/\b(checked|disabled|expanded|pressed|selected|level):\s*(\w+)/g)) {
          part += `[${k}=${v}]`
        }
        parts.push(part)
        break
      }
      case 'getByText': parts.push('text=' + arg); break
      case 'getByLabel': parts.push('label=' + arg); break
      case 'getByPlaceholder': parts.push('placeholder=' + arg); break
      case 'getByAltText': parts.push('alt=' + arg); break
      case 'getByTitle': parts.push('title=' + arg); break
      case 'getByTestId': parts.push('testid=' + raw); break
      case 'locator': parts.push(...splitParts(raw)); break
      case 'first': parts.push('nth=0'); break
      case 'last': parts.push('nth=-1'); break
      case 'nth': parts.push('nth=' + arg); break
      default: return null
    }
  }
  return parts
}

const mostOfSelector = 5000 // characters

// all are the elements that a selector matches.
function all(selector) {
  if (selector.length > mostOfSelector) {
    throw new Fault(`a selector of ${selector.length} characters is too long: give a ref, or a part of the text`)
  }
  let found = [document]
  for (const part of calls(selector.trim()) ?? splitParts(selector)) {
    const nth = /^nth=(-?\d+)$/.exec(part)
    if (nth) {
      const i = Number(nth[1])
      found = found.slice(i, i === -1 ? undefined : i + 1)
      continue
    }
    if (part === 'visible=true') {
      found = found.filter(isVisible)
      continue
    }
    const m = /^([\w-]+)=(.*)$/s.exec(part)
    let engine = m && Object.hasOwn(engines, m[1]) ? engines[m[1]] : null
    let body = engine ? m[2] : part
    if (!engine) {
      if (/^(["']).*\1$/s.test(part)) engine = byText
      else if (/^(\/\/|\.\.|\(\/\/)/.test(part)) engine = byXPath
      else engine = byCSS
    }
    const next = new Set()
    for (const root of found) {
      try {
        for (const el of engine(root, body)) next.add(el)
      } catch (e) {
        if (e instanceof Fault) throw e
        throw new Fault(`${JSON.stringify(part)} is not a ref of a snapshot and not a valid selector: ` +
          'give a ref such as e12, a CSS selector, text=… or role=button[name="…"]')
      }
    }
    found = [...next]
  }
  return found.filter((el) => el !== document)
}

const isVisible = (el) => {
  const r = el.getBoundingClientRect()
  return r.width > 0 && r.height > 0 && isShown(el)
}

// clickedByLabel are the types of inputs that pages hide behind their labels: a click on the
// label is one on the input.
const clickedByLabel = new Set(['checkbox', 'file', 'radio'])

// labelBoxes returns the visible labels, and elements in them, that are clicked in place of an
// input.
function labelBoxes(el) {
  if (tagOf(el) !== 'input' || !clickedByLabel.has(el.type)) return []
  return labelsOf(el).flatMap((label) => [label, ...elementsIn(label)]).filter((box) => box !== el && isVisible(box))
}

// boxesOf returns what of the page is clicked for an element, the best first.
const boxesOf = (el) => [...isVisible(el) ? [el] : [], ...labelBoxes(el)]

// only is the one element of a target: of a ref's number, or of a selector that
// matches one, or one that is visible.
function only(target) {
  if (typeof target === 'number') {
    const el = elementOf(target)
    if (el) return el
    throw new Fault('the element is not in the page any more: take a new browser_snapshot')
  }
  const found = all(target)
  if (found.length === 0) return null
  const seen = found.length > 1 ? found.filter(isVisible) : found
  if (found.length === 1 || seen.length === 1) return seen[0] ?? found[0]
  const some = found.slice(0, 5).map((el, i) => `\n  ${i + 1}) ${describe(el)}`).join('')
  throw new Fault(`${JSON.stringify(target)} matches ${found.length} elements: give a narrower selector, add ` +
    `">> nth=0", or give a ref of a snapshot${some}${found.length > 5 ? '\n  …' : ''}`)
}
