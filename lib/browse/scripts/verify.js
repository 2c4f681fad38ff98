// What tests ask of a page.

// valueNow is the value of a control: that of a checkbox or a radio button is whether it
// is checked.
function valueNow({ target }) {
  const el = only(target)
  const role = roleOf(el)
  const is = isChecked(el, role)
  return String(is ?? el.value ?? valueOf(el, role) ?? el.innerText ?? '')
}

// missing is the first of the texts that nothing in an element has, null if none is.
function missing({ target, texts }) {
  const el = only(target)
  return texts.find((t) => !byText(el, t).some(isVisible)) ?? null
}

const byRoleCall = (role, name) => `getByRole('${role}', { name: ${quoteJS(name)} })`

const quoteJS = (s) => (/['\\\n]/.test(s) ? JSON.stringify(s) : "'" + s + "'")

// calls that find an element in a test, the most readable first.
function* callsFor(el) {
  const role = roleOf(el), name = nameOf(el, role)
  const testID = el.getAttribute('data-testid')
  if (testID) yield `getByTestId(${quoteJS(testID)})`
  if (ariaRoles.has(role) && role !== 'generic' && name && name.length < 100) {
    yield byRoleCall(role, name)
    yield byRoleCall(role, name).replace(/ }\)$/, ', exact: true })')
  }
  const placeholder = el.getAttribute('placeholder')
  if (placeholder) yield `getByPlaceholder(${quoteJS(placeholder)})`
  const words = text(el.innerText ?? '')
  if (words && words.length < 100) yield `getByText(${quoteJS(words)}, { exact: true })`
}

// locator is an expression that finds an element in a test of Playwright.
function locator({ el, target }) {
  el ??= only(target)
  const call = [...callsFor(el)].find((c) => isOnly(c, el))
  return call ?? `locator(${quoteJS(selectorsOf(el).find((s) => !s.startsWith('role=')))})`
}
