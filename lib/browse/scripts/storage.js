// The storage of the page: localStorage or sessionStorage.

function storageOf(kind) {
  try {
    return globalThis[kind]
  } catch {
    throw new Fault(`the page has no ${kind}: it belongs to no site`)
  }
}

function items({ kind }) {
  const all = storageOf(kind)
  return Array.from({ length: all.length }, (_, i) => all.key(i)).sort().map((key) => (
    { key, value: all.getItem(key) }))
}

// setItem sets an item, or removes it if it is given no value, or removes all without a key. It
// returns whether there was the item to remove.
function setItem({ kind, key, value }) {
  const all = storageOf(kind)
  if (key === null) return all.clear()
  const had = all.getItem(key) !== null
  if (value === null) {
    all.removeItem(key)
    return had
  }
  try {
    all.setItem(key, value)
  } catch {
    throw new Fault(`the ${kind} of the page is full`)
  }
}
