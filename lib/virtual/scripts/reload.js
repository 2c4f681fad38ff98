// Gives a page back what its reload has lost, before its first script runs: the
// scroll positions later, when the page is as long as it was. It runs in a world of
// its own, in which returning has those that are not back for good, and the promise
// scrolled says that all are back, or will not be.
(tab) => {
  if (window !== top || location.origin !== tab.origin) {
    return;
  }
  for (const [name, value] of tab.items) {
    sessionStorage.setItem(name, value);
  }
  globalThis.returning = tab.scrolled.map(([path, x, y]) => ({ path, x, y }));
  const put = (p) => {
    const e = p.path.reduce((e, i) => e?.children[i], document.documentElement);
    const isThere = () => Math.abs(e.scrollLeft - p.x) <= 1 && Math.abs(e.scrollTop - p.y) <= 1;
    if (!e) {
      return;
    }
    if (p.height === e.scrollHeight && !isThere()) {
      returning = returning.filter((other) => other !== p); // somebody has scrolled it since
      return;
    }
    e.scrollTo({ left: p.x, top: p.y, behavior: 'instant' });
    p.height = isThere() ? e.scrollHeight : undefined;
  };
  globalThis.scrolled = new Promise((done) => {
    let tries = 100;
    let still = 0; // for how many tries they have been there
    const step = () => {
      returning.forEach(put);
      const there = returning.every((p) => p.height !== undefined);
      still = there && document.readyState === 'complete' ? still + 1 : 0;
      if (there || tries === 0) {
        done('true');
      }
      if (still < 5 && tries-- > 0) {
        setTimeout(step, 100); // what is loaded later moves them
      } else {
        returning = [];
      }
    };
    if (returning.length === 0) {
      done('true');
      return;
    }
    for (const input of ['wheel', 'keydown', 'pointerdown', 'touchstart']) {
      addEventListener(input, () => (returning = []), { once: true, capture: true, passive: true });
    }
    if (document.readyState === 'loading') {
      addEventListener('DOMContentLoaded', step, { once: true });
    } else { // Chrome runs this with the first script, and a page that has none may be complete
      step();
    }
    addEventListener( // after the page's own scripts for its load
      'pageshow',
      () => {
        returning.forEach((p) => (p.height = undefined));
        returning.forEach(put);
      },
      { once: true },
    );
  });
}
