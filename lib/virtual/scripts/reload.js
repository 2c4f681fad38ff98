// Gives a page back what its reload has lost, before its first script runs: the
// scroll position later, when the page is as long as it was. It runs in a world of
// its own.
(tab) => {
  if (window !== top || location.origin !== tab.origin) {
    return;
  }
  for (const [name, value] of tab.items) {
    sessionStorage.setItem(name, value);
  }
  let tries = 50;
  const scroll = () => {
    scrollTo(tab.x, tab.y);
    if (Math.abs(scrollY - tab.y) > 1 && tries-- > 0) {
      setTimeout(scroll, 100);
    }
  };
  addEventListener('load', scroll, { once: true });
}
