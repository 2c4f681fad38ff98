// Roles, names and states of elements, after WAI-ARIA and accname.

const text = (s) => s.replace(/[\s\u200b\u00ad]+/g, ' ').trim()

const isBlank = (child) => typeof child === 'string' && !/[^\s\u200b\u00ad]/.test(child)

// getter reads a property past what a page has put before it: document.body may be an image
// with that name, and a form's parentElement an input.
function getter(type, name) {
  const { get } = Object.getOwnPropertyDescriptor(type.prototype, name)
  return (it) => get.call(it)
}

const bodyOf = getter(Document, 'body'), rootOf = getter(Document, 'documentElement'), headOf = getter(Document, 'head')
const activeOf = getter(Document, 'activeElement')
const parentOf = getter(Node, 'parentElement'), slotOf = getter(Element, 'assignedSlot')
const tagOf = getter(Element, 'localName'), shadowOf = getter(Element, 'shadowRoot')
const childNodesOf = getter(Node, 'childNodes'), attributesOf = getter(Element, 'attributes')

// flatChildren are the children of an element as they are rendered: those of its
// shadow root, and what a slot is assigned.
function flatChildren(el) {
  if (tagOf(el) === 'slot') {
    const assigned = el.assignedNodes()
    if (assigned.length) return assigned
  }
  return childNodesOf(shadowOf(el) ?? el)
}

// eachChild calls a function with each of them, in a sixth of the time that it takes to
// iterate over childNodes.
function eachChild(el, f) {
  if (el.localName === 'slot') return flatChildren(el).forEach((child) => f(child))
  for (let child = (el.shadowRoot ?? el).firstChild; child; child = child.nextSibling) f(child)
}

// flatParent is the element that an element is rendered in.
function flatParent(el) {
  const around = slotOf(el) ?? parentOf(el)
  if (around) return around
  const root = Node.prototype.getRootNode.call(el)
  return root instanceof ShadowRoot ? root.host : null
}

const neverShown = new Set(['script', 'style', 'noscript', 'template', 'head', 'meta', 'link', 'title', 'base',
  'source', 'track', 'param'])

// isRendered says whether an element has a place in the page; what is in it may
// have one if only its own visibility is hidden.
function isRendered(el) {
  if (neverShown.has(el.localName)) return false
  return el.localName === 'slot' || Element.prototype.checkVisibility.call(el) ||
    getComputedStyle(el).display === 'contents'
}

const isShown = (el) => isRendered(el) && (el.localName === 'slot' || getComputedStyle(el).visibility === 'visible')

const isHiddenFromAria = (el) => el.getAttribute('aria-hidden')?.toLowerCase() === 'true'

const ariaRoles = new Set(('alert alertdialog application article banner blockquote button caption cell checkbox ' +
  'code columnheader combobox complementary contentinfo definition deletion dialog directory document emphasis feed ' +
  'figure form generic grid gridcell group heading img image insertion link list listbox listitem log main mark ' +
  'marquee math meter menu menubar menuitem menuitemcheckbox menuitemradio navigation none note option paragraph ' +
  'presentation progressbar radio radiogroup region row rowgroup rowheader scrollbar search searchbox separator ' +
  'slider spinbutton status strong subscript superscript switch tab table tablist tabpanel term textbox time timer ' +
  'toolbar tooltip tree treegrid treeitem').split(' '))

const inputRoles = {
  button: 'button', submit: 'button', reset: 'button', image: 'button', file: 'button', color: 'button',
  checkbox: 'checkbox', radio: 'radio', range: 'slider', number: 'spinbutton', search: 'searchbox',
}

const tagRoles = {
  article: 'article', aside: 'complementary', blockquote: 'blockquote', button: 'button', caption: 'caption',
  code: 'code', datalist: 'listbox', dd: 'definition', del: 'deletion', details: 'group', dfn: 'term',
  dialog: 'dialog', dt: 'term', em: 'emphasis', fieldset: 'group', figure: 'figure', h1: 'heading', h2: 'heading',
  h3: 'heading', h4: 'heading', h5: 'heading', h6: 'heading', hr: 'separator', html: 'document', ins: 'insertion',
  li: 'listitem', main: 'main', math: 'math', menu: 'list', meter: 'meter', nav: 'navigation', ol: 'list',
  optgroup: 'group', option: 'option', output: 'status', p: 'paragraph', progress: 'progressbar', search: 'search',
  strong: 'strong', sub: 'subscript', summary: 'button', sup: 'superscript', table: 'table', tbody: 'rowgroup',
  textarea: 'textbox', tfoot: 'rowgroup', thead: 'rowgroup', time: 'time', tr: 'row', ul: 'list',
}

const sectioning = 'article, aside, main, nav, section'

function implicitRole(el) {
  switch (el.localName) {
    case 'a': case 'area': return el.hasAttribute('href') ? 'link' : 'generic'
    case 'footer': return el.closest(sectioning) ? 'generic' : 'contentinfo'
    case 'header': return el.closest(sectioning) ? 'generic' : 'banner'
    case 'form': return hasOwnName(el) ? 'form' : 'generic'
    case 'section': return hasOwnName(el) ? 'region' : 'generic'
    case 'img': return el.getAttribute('alt') === '' && !el.title ? 'presentation' : 'img'
    case 'svg': return 'img'
    case 'input':
      if (inputRoles[el.type]) return inputRoles[el.type]
      return el.list ? 'combobox' : 'textbox'
    case 'select': return el.multiple || el.size > 1 ? 'listbox' : 'combobox'
    case 'td': return isInGrid(el) ? 'gridcell' : 'cell'
    case 'th': return el.scope === 'row' || el.scope === 'rowgroup' ? 'rowheader' : 'columnheader'
    case 'iframe': case 'frame': return 'iframe'
    case 'body': return el.isContentEditable ? 'textbox' : 'generic' // an editor in a frame
  }
  return tagRoles[el.localName] ?? 'generic'
}

const isInGrid = (el) => ['grid', 'treegrid'].includes(el.closest('table')?.getAttribute('role'))

function hasOwnName(el) {
  return el.hasAttribute('aria-label') || el.hasAttribute('aria-labelledby') || el.hasAttribute('title')
}

function roleOf(el) {
  const given = el.getAttribute('role')
  if (given) {
    const role = given.toLowerCase().split(/\s+/).find((r) => ariaRoles.has(r))
    if (role === 'none' || role === 'presentation') {
      if (!isFocusable(el) && !hasOwnName(el)) return 'presentation'
    } else if (role) {
      return role === 'image' ? 'img' : role
    }
  }
  return implicitRole(el)
}

const isFocusable = (el) => el.tabIndex >= 0 || el.hasAttribute('tabindex') || el.isContentEditable

const namedByContent = new Set(['button', 'cell', 'checkbox', 'columnheader', 'gridcell', 'heading', 'link',
  'menuitem', 'menuitemcheckbox', 'menuitemradio', 'option', 'radio', 'rowheader', 'switch', 'tab', 'tooltip',
  'treeitem'])

const notNameable = new Set(['caption', 'code', 'definition', 'deletion', 'emphasis', 'generic', 'insertion', 'mark',
  'none', 'paragraph', 'presentation', 'strong', 'subscript', 'superscript', 'term', 'time'])

const mostOfName = 300 // characters

function clip(s, most) {
  return s.length > most ? s.slice(0, most) + '…' : s
}

// nameOf is the accessible name of an element.
function nameOf(el, role) {
  return clip(text(nameIn(el, role, new Set(), true)), mostOfName)
}

function nameIn(el, role, seen, follow) {
  if (seen.has(el)) return ''
  seen.add(el)
  const by = follow && el.getAttribute('aria-labelledby')
  if (by) {
    const ids = by.split(/\s+/).filter(Boolean)
    const root = el.getRootNode()
    const parts = ids.map((id) => root.getElementById?.(id)).filter(Boolean)
    const name = text(parts.map((e) => nameIn(e, roleOf(e), new Set(seen), false) || contentOf(e, seen)).join(' '))
    if (name) return name
  }
  const label = text(el.getAttribute('aria-label') ?? '')
  if (label) return label
  const native = nativeName(el, seen)
  if (native !== undefined && text(native)) return native
  if (namedByContent.has(role)) {
    const content = contentOf(el, seen)
    if (text(content)) return content
  }
  if (notNameable.has(role)) return ''
  return el.getAttribute('title') ?? ''
}

// forIDs are the labels of the IDs that they are for, by root, as long as no other script
// runs: to find those of one element, the browser looks at the whole document.
let forIDs = null

function labelsFor(root, id) {
  if (!forIDs) {
    forIDs = new Map()
    queueMicrotask(() => { forIDs = null })
  }
  if (!forIDs.has(root)) {
    forIDs.set(root, Map.groupBy(root.querySelectorAll?.('label[for]') ?? [], (label) => label.htmlFor))
  }
  return forIDs.get(root).get(id) ?? []
}

// labelsOf are the labels of an element.
function labelsOf(el) {
  if (!('labels' in el)) return []
  const around = el.closest('label')
  return around || el.id && labelsFor(el.getRootNode(), el.id).length ? [...(el.labels ?? [])] : []
}

const labelText = (el, seen) => labelsOf(el).map((l) => contentOf(l, seen)).join(' ')

// nativeName is the name that HTML gives an element, undefined if it gives none.
function nativeName(el, seen) {
  switch (el.localName) {
    case 'input':
      switch (el.type) {
        case 'button': case 'submit': case 'reset':
          return el.value || { submit: 'Submit', reset: 'Reset' }[el.type]
        case 'image': return el.alt || el.value || el.title || 'Submit'
        case 'file': return text(labelText(el, seen)) || 'Choose File'
      }
      return text(labelText(el, seen)) || el.title || el.placeholder
    case 'textarea': return text(labelText(el, seen)) || el.title || el.placeholder
    case 'select': case 'meter': case 'output': case 'progress': case 'button': {
      const label = text(labelText(el, seen))
      return label || undefined
    }
    case 'img': case 'area': return el.alt
    case 'svg': return [...el.children].find((c) => c.localName === 'title')?.textContent
    case 'fieldset': return childContent(el, 'legend', seen)
    case 'figure': return childContent(el, 'figcaption', seen)
    case 'table': return childContent(el, 'caption', seen)
    case 'optgroup': case 'option': return el.label
    case 'iframe': return el.title
  }
  return undefined
}

function childContent(el, tag, seen) {
  const child = [...el.children].find((c) => c.localName === tag)
  return child ? contentOf(child, seen) : undefined
}

// contentOf is the text in an element, with the names of what is embedded.
function contentOf(el, seen) {
  let all = ''
  for (const node of flatChildren(el)) {
    if (all.length > 4 * mostOfName) break
    if (node.nodeType === Node.TEXT_NODE) all += node.data
    else if (node.nodeType === Node.ELEMENT_NODE) all += contentPart(node, seen)
  }
  return all
}

function contentPart(el, seen) {
  if (seen.has(el) || isHiddenFromAria(el) || !isShown(el)) return ''
  const role = roleOf(el)
  let part
  if (el.hasAttribute('aria-label') || ['img', 'iframe'].includes(role)) part = nameIn(el, role, seen, false)
  else if (role === 'textbox' || role === 'searchbox') part = el.value ?? contentOf(el, seen)
  else if (role === 'combobox' && el.localName === 'select') part = el.selectedOptions[0]?.label ?? ''
  else part = contentOf(el, seen)
  const inline = el.localName === 'slot' || getComputedStyle(el).display.startsWith('inline')
  return inline ? part : ' ' + part + ' '
}

const ariaFlag = (el, name) => el.getAttribute('aria-' + name)?.toLowerCase()

function isDisabled(el) {
  return 'disabled' in el && el.matches(':disabled') || isMarkedDisabled(el)
}

// markedDisabled says of the elements around others whether they are disabled by an
// attribute, as long as no other script runs.
let markedDisabled = null

function isMarkedDisabled(el) {
  const own = ariaFlag(el, 'disabled')
  if (own === 'true' || own === 'false') return own === 'true'
  const around = flatParent(el)
  if (!around) return false
  if (!markedDisabled) {
    markedDisabled = new Map()
    queueMicrotask(() => { markedDisabled = null })
  }
  if (!markedDisabled.has(around)) markedDisabled.set(around, isMarkedDisabled(around))
  return markedDisabled.get(around)
}

const checkable = new Set(['checkbox', 'menuitemcheckbox', 'menuitemradio', 'option', 'radio', 'switch', 'treeitem'])

// isChecked is true, false or 'mixed', undefined if the element cannot be checked.
function isChecked(el, role) {
  if (el.localName === 'input' && (el.type === 'checkbox' || el.type === 'radio')) {
    return el.indeterminate ? 'mixed' : el.checked
  }
  const given = ariaFlag(el, 'checked')
  if (!checkable.has(role) || given === undefined) return undefined
  return given === 'mixed' ? 'mixed' : given === 'true'
}

// valueOf is the value of a control, undefined if it has none to show.
function valueOf(el, role) {
  if (el.localName === 'input') {
    if (el.type === 'password') return '•'.repeat(el.value.length)
    if (el.type === 'file') return [...el.files].map((f) => f.name).join(', ')
    if (['textbox', 'searchbox', 'slider', 'spinbutton', 'combobox'].includes(role) || el.type === 'color') {
      return el.value
    }
    return undefined
  }
  if (el.localName === 'textarea') return el.value
  if (el.localName === 'progress' || el.localName === 'meter') {
    return el.hasAttribute('value') ? String(el.value) : undefined
  }
  if (['slider', 'spinbutton', 'scrollbar', 'progressbar', 'meter'].includes(role)) {
    return el.getAttribute('aria-valuetext') ?? el.getAttribute('aria-valuenow') ?? undefined
  }
  return undefined
}

// word is what a page gives as a state, without what could be read as another one.
const word = (s) => clip(text(s).replace(/[[\]=]/g, ''), 30)

// statesOf are the states of an element as the snapshot shows them.
function statesOf(el, role) {
  if (!el.hasAttributes() && role !== 'heading' && el.localName !== 'summary' && !('disabled' in el)) {
    return isMarkedDisabled(el) ? ['disabled'] : []
  }
  const all = []
  const checked = isChecked(el, role)
  if (checked) all.push(checked === 'mixed' ? 'checked=mixed' : 'checked')
  if (isDisabled(el)) all.push('disabled')
  const expanded = el.localName === 'summary' && el.parentElement?.localName === 'details'
    ? String(el.parentElement.open) : ariaFlag(el, 'expanded')
  if (expanded === 'true') all.push('expanded')
  else if (expanded === 'false') all.push('expanded=false')
  if (role === 'heading') {
    const level = el.getAttribute('aria-level') ?? /^h([1-6])$/.exec(el.localName)?.[1]
    if (level) all.push('level=' + word(level))
  }
  const pressed = ariaFlag(el, 'pressed')
  if (pressed === 'true') all.push('pressed')
  else if (pressed === 'mixed') all.push('pressed=mixed')
  if (el.localName === 'option' ? el.selected : ariaFlag(el, 'selected') === 'true') all.push('selected')
  const current = ariaFlag(el, 'current')
  if (current && current !== 'false') all.push(current === 'true' ? 'current' : 'current=' + word(current))
  if (ariaFlag(el, 'invalid') === 'true') all.push('invalid')
  if (el.required || ariaFlag(el, 'required') === 'true') all.push('required')
  if (el.readOnly && role === 'textbox') all.push('readonly')
  return all
}

// describe is an element as errors and results name it: button "Buy".
function describe(el) {
  const role = roleOf(el)
  const name = nameOf(el, role) || (role === 'generic' ? clip(text(el.textContent ?? ''), 40) : '')
  const word = role === 'generic' || role === 'presentation' ? '<' + el.localName + hint(el) + '>' : role
  return name ? word + ' ' + JSON.stringify(clip(name, 60)) : word
}

// hint is what distinguishes an element in HTML: its ID or its first classes.
function hint(el) {
  const id = el.getAttribute('id')
  if (id) return '#' + clip(text(id), 60)
  const classes = [...el.classList].slice(0, 2).join('.')
  return classes ? '.' + clip(classes, 60) : ''
}
