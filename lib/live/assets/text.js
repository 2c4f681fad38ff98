// text.js: what pages and programs say, made safe to show, and times for people.

const most = 2048;

// shown returns a text, cut, with its control characters but line feeds made visible: its writer may not be a friend.
export function shown(text) {
  const s = String(text ?? '');
  const cut = s.length > most ? s.slice(0, most) + '…' : s;
  return cut.replace(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

// originOf returns the origin of an address as people know it, or what it is instead.
export function originOf(address) {
  if (!URL.canParse(address)) return '';
  const u = new URL(address);
  if (u.protocol === 'http:' || u.protocol === 'https:') return shown(u.origin.replace(/^https:\/\//, ''));
  return shown(u.protocol + (u.protocol === 'about:' || u.protocol === 'chrome:' ? u.pathname : '…'));
}

// span returns a number of seconds as words.
export function span(seconds) {
  const [unit, word] = seconds < 60 ? [1, 's'] : seconds < 3600 ? [60, 'min'] : seconds < 86400 ? [3600, 'h'] : [86400, 'd'];
  return `${Math.floor(seconds / unit)} ${word}`;
}

// clock returns a time as 10:04.
export function clock(time) {
  return new Date(time).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
}

const verbs = {
  'Page.navigate': 'goes to another page', 'Page.reload': 'reloads', 'Page.close': 'closes a tab',
  'Page.handleJavaScriptDialog': 'answers a dialog', 'Page.navigateToHistoryEntry': 'goes back or forward',
  'Target.createTarget': 'opens a tab', 'Target.closeTarget': 'closes a tab', 'Input.dispatchKeyEvent': 'types',
  'Input.insertText': 'types', 'DOM.setFileInputFiles': 'chooses a file', 'DOM.scrollIntoViewIfNeeded': 'scrolls',
  'Runtime.evaluate': 'runs a script', 'Runtime.callFunctionOn': 'runs a script', 'Page.captureScreenshot': 'takes a picture',
  'Accessibility.getFullAXTree': 'reads the page', 'DOMSnapshot.captureSnapshot': 'reads the page',
  'Storage.setCookies': 'sets cookies', 'Network.setCookies': 'sets cookies',
};
// quiet are the methods by which a client asks or prepares, which are of no interest.
const quiet = /\.(enable|disable|get|set|add|remove|release|runIf|describe|resolve|discard|attach|detach|createIsolated|fulfill|continue)/;

// verbOf returns what a command of the agent does, in words if it is a usual one; "" if it is of no interest.
export function verbOf({ method, type }) {
  if (method === 'Input.dispatchMouseEvent') {
    return { mousePressed: '', mouseReleased: 'clicks', mouseWheel: 'scrolls' }[type] ?? 'moves the mouse';
  }
  return verbs[method] ?? (quiet.test(method) ? '' : method);
}
