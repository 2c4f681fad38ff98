// notify.js: a notification of each new ask, if the person allows it.
import { shown } from './text.js';

const told = new Set(); // asks, by session and time

// mayAsk reports whether the person can still be asked to allow notifications.
export const mayAsk = () => 'Notification' in window && Notification.permission === 'default';

// notify tells of asks that are new, while the page is not looked at.
export function notify(sessions) {
  for (const { key, name, ask } of sessions.filter((s) => s.ask)) {
    const id = `${key} ${ask.since}`;
    if (told.has(id)) continue;
    told.add(id);
    if (document.hidden && 'Notification' in window && Notification.permission === 'granted') {
      const note = new Notification(`${shown(name)} needs you`, { tag: id, body: 'A person is asked for in this session.' });
      note.onclick = () => {
        window.focus();
        location.hash = `#/${encodeURIComponent(key)}`;
      };
    }
  }
}
