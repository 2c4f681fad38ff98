// What a reload of a page would lose. It runs in a world of its own.
() => {
  let items = [];
  try {
    // Object.keys(sessionStorage) has no names of its own members.
    const names = Array.from({ length: sessionStorage.length }, (_, i) => sessionStorage.key(i));
    items = names.map((name) => [name, sessionStorage.getItem(name)]);
  } catch {} // a page without an origin has none
  // Where an element is: its number and its ancestors' among their siblings, from the root down.
  const pathOf = (e) =>
    e.parentElement ? [...pathOf(e.parentElement), Array.prototype.indexOf.call(e.parentElement.children, e)] : [];
  const back = globalThis.returning ?? []; // from the last reload, and not yet there
  const scrolled = Array.from(document.querySelectorAll('*:not(input, select, textarea)'))
    .filter((e) => e.scrollLeft || e.scrollTop)
    .map((e) => ({ path: pathOf(e), x: e.scrollLeft, y: e.scrollTop }))
    .filter((e) => !back.some((other) => String(other.path) === String(e.path)));
  const positions = [...back, ...scrolled].slice(0, 100).map(({ path, x, y }) => [path, x, y]);
  return JSON.stringify({ origin: location.origin, scrolled: positions, items });
}
