// A value of a page as JSON has it: dates and the like by their toJSON. Lists have none
// of their own, but libraries give them one that returns a text.
(value) => {
  const json = (v, above) => {
    if (v instanceof Node) return '<' + v.nodeName.toLowerCase() + '>'
    if (typeof v === 'function' || typeof v === 'symbol') return undefined
    if (typeof v !== 'object' || v === null) return v
    if (v === window || above.includes(v)) {
      throw new TypeError('the result refers to itself: return only the values that are needed of it')
    }
    if (!Array.isArray(v) && typeof v.toJSON === 'function') {
      v = v.toJSON()
      if (typeof v !== 'object' || v === null) return v
    }
    const below = [...above, v]
    if (Array.isArray(v)) return v.map((item) => json(item, below) ?? null)
    return Object.fromEntries(Object.entries(v).map(([name, member]) => [name, json(member, below)]))
  }
  return json(value, [])
}
