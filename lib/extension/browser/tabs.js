// The tabs that clients may use: those that were opened for them, those that
// these opened, and those that the user shares. All others are out of reach,
// unless the hub was started with --all-tabs.

import {saveOpened} from './settings.js';

const PROTOCOL = '1.3';
const SETTLE = 100; // milliseconds in which Chrome says which page has opened a tab
const SHAREABLE = /^(https?|file|data|blob|view-source):|^about:blank/;

export class Tabs {
  #opened = new Map(); // the group's key, by tab
  #shared = new Set();
  #openers = new Map(); // the tab whose page has opened it, by tab
  #adopting = new Set(); // told about once it is known which page has opened them
  #attached = new Map(); // a promise, by tab
  #groups = new Map(); // {windowId, made}: the window and the promise of the tab group, by key
  #all = false;
  #released = 0; // counts releases
  #tell = () => {};
  #recount = () => {};

  // listen reports events with tell; cancel is called when the user ends
  // debugging, recount when the number of tabs may have changed.
  listen({tell, cancel, recount}) {
    this.#tell = tell;
    this.#recount = recount;
    chrome.debugger.onEvent.addListener(({tabId, sessionId}, method, params) => {
      this.#tell('cdp', {tabId, sessionId, method, params});
    });
    chrome.debugger.onDetach.addListener(({tabId}, reason) => {
      this.#attached.delete(tabId);
      if (reason === 'canceled_by_user') cancel();
      else this.#tell('detached', {tabId, reason});
    });
    chrome.webNavigation.onCreatedNavigationTarget.addListener(({sourceTabId, tabId}) => {
      this.#adopt(tabId, sourceTabId);
    });
    chrome.tabs.onCreated.addListener((tab) => { // its openerTabId may be the tab that was opened before it
      if (this.#all) setTimeout(() => this.#report(tab.id), SETTLE);
    });
    chrome.tabs.onUpdated.addListener((tabId, change) => {
      if ((change.url !== undefined || change.title !== undefined) && this.isUsed(tabId)) this.#report(tabId);
    });
    chrome.tabs.onRemoved.addListener((tabId) => {
      const used = this.isUsed(tabId);
      this.#shared.delete(tabId);
      this.#openers.delete(tabId);
      this.#attached.delete(tabId);
      if (this.#opened.has(tabId)) this.#forget(tabId);
      if (used) this.#removed(tabId);
    });
    chrome.downloads.onCreated.addListener(({id, url, finalUrl}) => this.#tell('download', {id, url, finalUrl}));
  }

  isShared(tabId) { return this.#shared.has(tabId); }
  isUsed(tabId) { return this.#all || this.#opened.has(tabId) || this.#shared.has(tabId); }

  async isShareable(tabId) {
    const tab = await chrome.tabs.get(tabId).catch(() => null);
    return SHAREABLE.test(tab?.url ?? '');
  }

  // count returns the number of tabs that clients may use.
  async count() {
    if (!this.#all) return this.#opened.size + this.#shared.size;
    return (await chrome.tabs.query({})).filter((tab) => SHAREABLE.test(tab.url)).length;
  }

  async share(tabId) {
    if (!(await this.isShareable(tabId))) throw new Error('Chrome keeps this page from extensions');
    this.#shared.add(tabId);
    await this.#report(tabId);
  }

  async unshare(tabId) {
    if (!this.#shared.delete(tabId)) return;
    await this.#detach(tabId);
    this.#removed(tabId);
  }

  // release closes what was opened for clients, and detaches from the rest.
  async release() {
    const opened = [...this.#opened.keys()];
    this.#released++;
    this.#opened.clear();
    this.#groups.clear();
    this.#all = false;
    await Promise.allSettled([...this.#attached.keys()].map((tabId) => this.#detach(tabId)));
    await this.closeLeft(opened);
    await this.#saveOpened();
  }

  async closeLeft(tabIds) {
    await Promise.allSettled(tabIds.map((tabId) => chrome.tabs.remove(tabId)));
  }

  // call does what the hub asks for.
  async call(name, args) {
    const method = this.#calls[name];
    if (!method) throw new Error(`there is no call ${name}`);
    if (args?.tabId !== undefined && !this.isUsed(args.tabId)) throw new Error('No target with given id found');
    return method.call(this, args ?? {});
  }

  #calls = {
    // cdp sends a command to a tab, or to a frame or a worker in it.
    async cdp({tabId, sessionId, method, params}) {
      const ready = this.#attached.get(tabId) ?? this.#attach(tabId);
      await ready;
      return chrome.debugger.sendCommand(sessionId ? {tabId, sessionId} : {tabId}, method, params);
    },
    async list({all}) {
      this.#all = Boolean(all);
      this.#recount();
      const known = (await chrome.tabs.query({})).filter((tab) => this.isUsed(tab.id));
      const targets = await chrome.debugger.getTargets();
      return {tabs: known.filter((tab) => SHAREABLE.test(tab.url)).map((tab) => this.#describe(tab, targets))};
    },
    async open({group, title}) {
      const released = this.#released;
      const tab = await this.#create(group);
      if (released !== this.#released) { // its client is gone
        this.#groups.delete(group);
        await this.closeLeft([tab.id]);
        throw new Error('the hub has ended');
      }
      this.#opened.set(tab.id, group);
      await this.#saveOpened();
      await Promise.all([this.#attach(tab.id), this.#gather(tab, group, title)]);
      return this.#describe(await chrome.tabs.get(tab.id), await chrome.debugger.getTargets());
    },
    async close({tabId}) {
      await chrome.tabs.remove(tabId);
    },
    async activate({tabId}) {
      const tab = await chrome.tabs.update(tabId, {active: true});
      await chrome.windows.update(tab.windowId, {focused: true});
    },
    async detach({tabId}) {
      await this.#detach(tabId);
    },
    async window({tabId, windowId, bounds}) {
      const id = windowId ?? (await chrome.tabs.get(tabId)).windowId;
      if (bounds) await chrome.windows.update(id, bounds);
      const {left, top, width, height, state} = await chrome.windows.get(id);
      return {windowId: id, bounds: {left, top, width, height, windowState: state}};
    },
    async downloads({id}) {
      return {items: await chrome.downloads.search({id})};
    },
    async eraseDownload({id}) {
      await chrome.downloads.removeFile(id).catch(() => {});
      await chrome.downloads.erase({id});
    },
    async cancelDownload({id}) {
      await chrome.downloads.cancel(id);
    },
  };

  // forget forgets a tab that is gone, and the window of a client without tabs.
  #forget(tabId) {
    const group = this.#opened.get(tabId);
    this.#opened.delete(tabId);
    if (![...this.#opened.values()].includes(group)) this.#groups.delete(group);
    this.#saveOpened();
  }

  // adopt takes over a tab that a page of a client has opened. One that the page
  // of a user's tab has opened stays the user's: nobody closes it.
  async #adopt(tabId, openerId) {
    if (this.#opened.has(tabId) || !this.isUsed(openerId)) return;
    this.#adopting.add(tabId);
    this.#openers.set(tabId, openerId);
    const group = this.#opened.get(openerId);
    if (group !== undefined) this.#opened.set(tabId, group);
    else if (this.#shared.has(openerId)) this.#shared.add(tabId);
    this.#recount();
    try {
      if (group !== undefined) await Promise.all([this.#saveOpened(), this.#attach(tabId)]);
      const tab = await chrome.tabs.get(tabId);
      this.#tell('tab', this.#describe(tab, await chrome.debugger.getTargets()));
      this.#adopting.delete(tabId);
      if (group !== undefined) await this.#gather(tab, group);
    } catch {
      // It is gone already, or Chrome keeps its page from extensions.
    } finally {
      this.#adopting.delete(tabId);
    }
  }

  // create opens a blank tab in the window of a group, which it makes for the
  // first one. A tab that is never in front of its window is not drawn: Chrome
  // leaves every second screenshot of it unanswered. In a window of their own,
  // tabs of clients are in front without taking the place of a user's tab.
  async #create(key) {
    const known = this.#groups.get(key);
    if (known) {
      const tab = await chrome.tabs.create({url: 'about:blank', windowId: known.windowId}).catch(() => null);
      if (tab) return tab;
      this.#groups.delete(key); // the user has closed it
    }
    const window = await chrome.windows.create({url: 'about:blank', focused: false});
    this.#groups.set(key, {windowId: window.id});
    return window.tabs[0];
  }

  // gather puts a tab into the group of its client.
  async #gather(tab, key, title) {
    const group = this.#groups.get(key) ?? {windowId: tab.windowId};
    this.#groups.set(key, group);
    const made = group.made ?? chrome.tabs.group({tabIds: [tab.id], createProperties: {windowId: tab.windowId}});
    try {
      if (group.made) {
        await chrome.tabs.group({tabIds: [tab.id], groupId: await made});
        return;
      }
      group.made = made;
      await chrome.tabGroups.update(await made, {title: title ?? 'btools', color: 'cyan'});
    } catch {
      group.made = undefined; // the user has dissolved it, or the window has no groups
    }
  }

  #removed(tabId) {
    this.#tell('removed', {tabId});
    this.#recount();
  }

  async #report(tabId) {
    this.#recount();
    if (this.#adopting.has(tabId)) return;
    const tab = await chrome.tabs.get(tabId).catch(() => null);
    if (tab && SHAREABLE.test(tab.url)) {
      this.#tell('tab', this.#describe(tab, await chrome.debugger.getTargets()));
    }
  }

  #describe(tab, targets) {
    return {
      tabId: tab.id, targetId: targets.find((t) => t.tabId === tab.id)?.id, url: tab.url, title: tab.title,
      windowId: tab.windowId, group: this.#opened.get(tab.id), openerTabId: this.#openers.get(tab.id),
      shared: this.#shared.has(tab.id),
    };
  }

  #attach(tabId) {
    const known = this.#attached.get(tabId);
    if (known) return known;
    const attached = chrome.debugger.attach({tabId}, PROTOCOL);
    this.#attached.set(tabId, attached);
    attached.catch(() => this.#attached.delete(tabId));
    return attached;
  }

  async #detach(tabId) {
    if (this.#attached.delete(tabId)) await chrome.debugger.detach({tabId}).catch(() => {});
  }

  #saveOpened() {
    this.#recount();
    return saveOpened([...this.#opened.keys()]);
  }
}
