// Typing: keys and text go to whatever has the focus. That it is the field which was named is
// made sure before they are sent, and while they come.

let typing // the field that text is typed into, with what is known of that; null: none

const keyEvents = ['keydown', 'keypress', 'beforeinput', 'input']

const mostTyping = 30000 // milliseconds, as no tool takes longer

const isField = (el) => el?.localName === 'input' || el?.localName === 'textarea' || !!el?.isContentEditable

// valueIn returns the text of a field, undefined if the page keeps it to itself.
const valueIn = (el) => (isField(el) ? el.value ?? el.innerText : undefined)

// beginTyping gives an element the focus. From then on keys that come to another one are
// held back, until endTyping.
function beginTyping(el, slowly) {
  endTyping()
  const what = describe(el)
  let host = el // of an editor, the whole has the focus
  while (el.isContentEditable && parentOf(host)?.isContentEditable) host = parentOf(host)
  host.focus()
  if (!isField(el) && isInside(focused(), el)) el = focused() // a field in an element of the page's own
  typing = {
    fields: [el], host, slowly, what, before: valueIn(el), keys: 0, took: false, last: null, stray: null,
    timer: setTimeout(endTyping, mostTyping),
  }
  for (const type of keyEvents) addEventListener(type, guardKey, true)
}

function endTyping() {
  if (!typing) return
  clearTimeout(typing.timer)
  for (const type of keyEvents) removeEventListener(type, guardKey, true)
  typing = null
}

// guardKey lets keys come to the field alone.
function guardKey(e) {
  if (!e.isTrusted) return
  const at = e.composedPath()[0]
  if (holds(at) || e.key !== 'Enter' && goesOn(at)) {
    typing.last = e
    typing.took ||= e.type === 'input'
    if (e.type === 'keydown') typing.keys++
  } else if (e.type !== 'input') {
    typing.stray ??= describe(at)
    e.preventDefault()
    e.stopImmediatePropagation()
  }
}

const holds = (el) => el instanceof Element && isInside(el, typing.host)

// goesOn says whether text goes on in another field: one that is full passes the focus to one of its kind, as the
// boxes for the digits of a code do.
function goesOn(at) {
  const { fields, slowly } = typing, el = fields.at(-1)
  if (!slowly || !(el.maxLength > 0) || el.value.length < el.maxLength || at?.localName !== 'input' ||
    at.type !== el.type) return false
  fields.push(typing.host = at)
  return true
}

// isInFocus says whether the document is the one of its page that has the focus. A page of Firefox in the background
// gets keys, too, though it has no focus.
function isInFocus() {
  for (let w = window; w !== top; w = w.parent) {
    const frame = w.frameElement
    if (!frame) return document.hasFocus() // of another site
    if (focused(frame.ownerDocument) !== frame) return false
  }
  return true
}

// hasKeys says whether keys would come to the field.
const hasKeys = () => !typing.stray && isInFocus() && (holds(focused()) || goesOn(focused())) &&
  !inertBy(typing.host)

// lost says where the focus is in place of the field.
function lost() {
  const { what, host, stray } = typing
  const how = !host.isConnected ? 'is removed as it gets the focus' : inertBy(host) ? 'is made inert as it gets the focus'
    : 'does not keep the focus'
  return `${what} ${how}, which is ${stray ? 'at ' + stray : focusPlace()}: `
}

const typedSoFar = () => (typing.keys ? `only ${typing.keys} keys were typed` : 'nothing was typed')

// keeps throws a Fault unless the next key would come to the field.
function keeps() {
  if (!typing) throw new Fault('the page was replaced by another one before all was typed')
  if (!hasKeys()) throw new Fault(lost() + typedSoFar())
}

// focusPlace says where the focus is, as far as this document may know.
function focusPlace() {
  let doc = document
  try {
    if (!doc.hasFocus()) doc = top.document
    for (let el; (el = focused(doc)?.contentDocument); ) doc = el
  } catch {
    return 'outside of its frame'
  }
  const el = focused(doc)
  return !el || el === bodyOf(doc) || el === rootOf(doc) ? 'nowhere' : 'at ' + describe(el)
}

// startTyping prepares a field for text: it has the focus, and what it has is selected or, to be typed after, has the
// caret behind it.
function startTyping(el, slowly) {
  beginTyping(el, slowly)
  if (!hasKeys()) {
    const why = lost() + typedSoFar()
    endTyping()
    throw new Fault(why)
  }
  el = typing.fields[0]
  if (slowly) putCaretLast(el)
  else if (el.select) el.select()
  else getSelection().selectAllChildren(el)
}

// putCaretLast puts the caret behind the text of a field.
function putCaretLast(el) {
  const { value } = el
  if (!el.setSelectionRange) return getSelection().collapse(...endOf(el))
  try {
    el.setSelectionRange(value.length, value.length)
  } catch { // of a number or an address, which tell no place in it: one that is set has the caret at its end
    if (!value) return
    el.value = ''
    el.value = value
  }
}

// endOf returns the node and the place in it where the text of an editor ends.
function endOf(el) {
  let last = el.lastChild
  while (last?.previousSibling && last.nodeType === Node.TEXT_NODE && !text(last.data)) last = last.previousSibling
  if (last?.nodeType === Node.TEXT_NODE) return [last, last.length]
  if (last?.localName === 'br') return [el, [...el.childNodes].indexOf(last)]
  return last?.isContentEditable ? endOf(last) : [el, el.childNodes.length]
}

// focus prepares a field for keys, which add to what it has.
function focus({ target }) {
  startTyping(controlOf(only(target)), true)
}

// typed returns words for what a field has made of a text, '' if it is the text. It throws a Fault if the text did not
// go there, or if Enter is to follow and would not.
async function typed({ value, enter, secret }) {
  const t = typing
  if (!t) return '' // the page has been replaced
  try {
    if (t.stray) throw new Fault(lost() + typedSoFar())
    const wants = t.slowly ? t.before + value : value
    const look = () => (t.before === undefined ? undefined : t.fields.map(valueIn).join(''))
    let has = look()
    for (let n = 0; n < 2 && t.host.isConnected && !isSame(t.fields[0], has, wants); n++) {
      await settle() // a page may put it right a little later
      has = look()
    }
    if (!t.slowly && value && has === t.before && !t.took && !t.last?.defaultPrevented) {
      throw new Fault(`${t.what} has not taken the text`)
    }
    if (enter && !hasKeys()) throw new Fault(lost() + notEntered)
    return become(t, has, wants, secret)
  } finally {
    if (!enter) endTyping()
  }
}

const notEntered = 'the text was typed, but Enter was not pressed'

// isSame says whether a field has a text. An editor has its own white space.
function isSame(el, has, wants) {
  const plain = (s) => String(s).replace(/[\s\u200b\ufeff]+/g, '')
  return has === wants || !['input', 'textarea'].includes(el.localName) && plain(has) === plain(wants)
}

// become returns words for what fields have, if it is not the text.
function become({ fields: [el, ...others], host }, has, wants, secret) {
  const on = others.length ? ', and into those after it, as the page moved the focus from one that was full' : ''
  if (has === undefined || isSame(el, has, wants)) return on
  if (!host.isConnected) return ', which the page has removed since'
  const most = el.maxLength > 0 && has.length >= el.maxLength && !on ? `: it takes ${el.maxLength} characters` : ''
  const have = on ? on + ': they have' : ', which has'
  if (secret || el.type === 'password') return `${have} ${has.length} characters of ${wants.length} now${most}`
  return `${have} ${has ? JSON.stringify(clip(has, 100)) : 'no text'} now${most}`
}

// entered ends typing after Enter, and throws a Fault if that went to another element.
function entered() {
  const why = typing?.stray && lost() + notEntered
  endTyping()
  if (why) throw new Fault(why)
}
