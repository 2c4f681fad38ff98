// What identifies an element that a person has chosen.

// isOnly says whether a selector matches an element and nothing else.
function isOnly(selector, el) {
  try {
    const found = all(selector)
    return found.length === 1 && found[0] === el
  } catch {
    return false
  }
}

// byID are selectors by an element's ID, unless it looks generated, and its test ID.
function* byID(el) {
  if (el.id && !/\d{3}|[:«]/.test(el.id)) yield '#' + CSS.escape(el.id)
  for (const name of ['data-testid', 'data-test-id', 'data-test']) {
    if (el.hasAttribute(name)) yield `[${name}=${JSON.stringify(el.getAttribute(name))}]`
  }
}

// byName are selectors by an element's role and name, and by any ID.
function* byName(el) {
  const role = roleOf(el), name = nameOf(el, role)
  if (role !== 'generic' && name && name.length < 100 && !/["\]\\]/.test(name)) yield `role=${role}[name="${name}"]`
  if (el.id) yield '#' + CSS.escape(el.id)
}

// step is an element among its siblings.
function step(el) {
  const siblings = [...(el.parentNode?.children ?? [el])]
  const tag = CSS.escape(el.localName)
  return siblings.filter((s) => s.localName === el.localName).length > 1 ?
    `${tag}:nth-child(${siblings.indexOf(el) + 1})` : tag
}

// pathTo is the way to an element from an element above it that has an ID or a test
// ID, or from the top of its shadow root or the body.
function pathTo(el) {
  const steps = [step(el)]
  for (let e = el.parentElement; e && e !== rootOf(document); e = e.parentElement) {
    const id = [...byID(e)].find((s) => isOnly(s, e))
    if (id) return [id, ...steps].join(' > ')
    steps.unshift(step(e))
  }
  const { host } = el.getRootNode()
  return (host ? selectorsOf(host)[0] + ' >> ' : '') + steps.join(' > ')
}

// selectorsOf are selectors that match an element and nothing else in the frame, the
// best first.
function selectorsOf(el) {
  const found = [...byID(el), ...byName(el)].filter((s) => isOnly(s, el))
  const path = pathTo(el)
  if (isOnly(path, el)) found.push(path)
  else found.push(`${path} >> nth=${all(path).indexOf(el)}`)
  return found
}

// identify is what an agent is told of an element, null if it is in another frame. What
// is in a closed shadow root cannot be named: its host is taken in its place.
function identify({ el, next, prefix }) {
  if (el.ownerDocument !== document) return null
  if (el.nodeType !== Node.ELEMENT_NODE) el = el.parentElement ?? el.getRootNode().host ?? rootOf(document)
  for (let root = el.getRootNode(); root.host; root = root.host.getRootNode()) {
    if (root.mode === 'closed') el = root.host
  }
  const { x, y, width, height } = el.getBoundingClientRect()
  const state = { next, prefix }
  return {
    what: describe(el), text: clip(text(el.innerText ?? el.textContent ?? ''), 1000), box: { x, y, width, height },
    selectors: selectorsOf(el), ref: refOf(el, state), next: state.next,
  }
}

