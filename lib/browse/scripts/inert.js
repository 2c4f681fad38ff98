// What keeps a person from a part of a page: the attribute inert, and a modal dialog, which
// makes all around it inert.

let modal // the modal dialog, null if none is open, as long as no other script runs

// modalDialog returns the modal dialog that is on top, null if none is open.
function modalDialog() {
  if (modal !== undefined) return modal
  queueMicrotask(() => { modal = undefined })
  const open = []
  for (const root of rootsIn(document)) open.push(...root.querySelectorAll('dialog:modal:not(:fullscreen)'))
  return modal = open.find((dialog) => dialog === modalAtMiddle(dialog, open)) ?? open.at(-1) ?? null
}

// modalAtMiddle returns which of several dialogs is at the middle of one: where that is inert, it is another.
function modalAtMiddle(dialog, open) {
  const r = dialog.getBoundingClientRect()
  let el = dialog.getRootNode().elementFromPoint(r.x + r.width / 2, r.y + r.height / 2)
  while (el && !open.includes(el)) el = flatParent(el)
  return el
}

const isMarkedInert = (el) => Element.prototype.hasAttribute.call(el, 'inert')

// inertBy returns what makes an element inert: an element with the attribute, or a modal
// dialog, which itself is not subject to what is around it. It is null if nothing does.
function inertBy(el) {
  const dialog = modalDialog()
  for (let e = el; e; e = flatParent(e)) {
    if (isMarkedInert(e)) return e
    if (e === dialog) return null
  }
  return dialog
}

// dialogName returns a dialog as errors and snapshots name it.
function dialogName(el) {
  const name = nameOf(el, roleOf(el)) || clip(text(el.innerText), 40)
  return roleOf(el) + (name && ' ' + JSON.stringify(name))
}

// refuseInert throws a Fault if an element is inert. It names the dialog that is open.
function refuseInert(el) {
  const by = inertBy(el)
  if (!by) return
  const open = by === modalDialog() ? by : [...elementsIn(document)].find((e) =>
    ['dialog', 'alertdialog'].includes(roleOf(e)) && isVisible(e) && !inertBy(e))
  throw new Fault(`${describe(el)} is inert: ` + (open ? `the ${dialogName(open)} is open`
    : `<${tagOf(by)}${hint(by)}> has that attribute`))
}

// place returns the number of this document's frame in the document around it, -1 if there is
// none or the frame is in a shadow root.
function place() {
  if (parent === window) return -1
  for (let i = 0; i < parent.length; i++) if (parent[i] === window) return i
  return -1
}

// usableFrame throws a Fault if the frame with a number is inert, else it returns place().
function usableFrame({ number }) {
  for (const root of rootsIn(document)) {
    for (const el of root.querySelectorAll('iframe, frame')) if (el.contentWindow === window[number]) refuseInert(el)
  }
  return place()
}
