// What a reload of a page would lose. It runs in a world of its own.
() => {
  let items = [];
  try {
    // Object.keys(sessionStorage) has no names of its own members.
    const names = Array.from({ length: sessionStorage.length }, (_, i) => sessionStorage.key(i));
    items = names.map((name) => [name, sessionStorage.getItem(name)]);
  } catch {} // a page without an origin has none
  return JSON.stringify({ origin: location.origin, x: scrollX, y: scrollY, items });
}
