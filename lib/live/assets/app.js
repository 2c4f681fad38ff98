// app.js: the page of bproxy view. It shows all sessions, or the one that the fragment of its address names.
import { html, render, useEffect, useState } from './vendor/htm-preact.js';
import { takeToken, watchSessions } from './cdp.js';
import { Grid } from './grid.js';
import { notify } from './notify.js';
import { Session } from './session.js';
import { shown } from './text.js';

// readAddress takes the token out of the address, and returns the key of the session that it names; "": none.
function readAddress() {
  takeToken();
  try {
    return decodeURIComponent(location.hash.slice(2));
  } catch {
    return '';
  }
}

function App() {
  const [sessions, update] = useState(), [error, fail] = useState(), [key, show] = useState(readAddress);
  useEffect(() => watchSessions((all) => { update(all); fail(); }, (e) => fail(e.message)), []);
  useEffect(() => { window.onhashchange = () => show(readAddress()); }, []);
  const asks = sessions?.filter((s) => s.ask).length;
  document.title = (asks ? `(${asks}) needs you: ` : '') + (key ? `${shown(key)} – btools` : 'Sessions – btools');
  useEffect(() => notify(sessions ?? []), [sessions]);
  return key
    ? html`<${Session} key=${key} sessionKey=${key} about=${sessions?.find((s) => s.key === key)} />`
    : html`<${Grid} sessions=${sessions} error=${error} />`;
}

render(html`<${App} />`, document.getElementById('app'));
