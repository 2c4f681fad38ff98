// The script of each page of the generated mix: a digest of what the page finds, and
// databases that are made from numbers.

function hash(text) {
  let h = text.length;
  for (let i = 0; i < text.length; i++) h = (Math.imul(h, 31) + text.charCodeAt(i)) | 0;
  return h;
}

function digest(storage) {
  const names = Array.from({ length: storage.length }, (_, i) => storage.key(i)).sort();
  let h = names.length;
  for (const name of names) {
    for (const text of [name, storage.getItem(name)]) {
      for (let i = 0; i < text.length; i++) h = (Math.imul(h, 31) + text.charCodeAt(i)) | 0;
    }
  }
  return h;
}

// describe returns a text for a value, the same for equal values only.
function describe(v, seen = new Map()) {
  if (v === null || typeof v !== 'object') return `${typeof v} ${Object.is(v, -0) ? '-0' : JSON.stringify(String(v))}`;
  if (seen.has(v)) return `#${seen.get(v)}`;
  seen.set(v, seen.size);
  const inner = (e) => describe(e, seen);
  const kind = Object.prototype.toString.call(v).slice(8, -1);
  const text = (() => {
    if (ArrayBuffer.isView(v)) return new Uint8Array(v.buffer, v.byteOffset, v.byteLength).join();
    switch (kind) {
      case 'DOMException': return [v.name, v.message, v.code];
      case 'ArrayBuffer': return new Uint8Array(v).join();
      case 'Date': return v.getTime();
      case 'RegExp': return String(v);
      case 'Boolean': case 'Number': case 'String': case 'BigInt': return inner(v.valueOf());
      case 'Error': return [v.name, v.message, v.stack, 'cause' in v && inner(v.cause)];
      case 'Map': return Array.from(v, ([k, e]) => `${inner(k)}=${inner(e)}`);
      case 'Set': return Array.from(v, inner);
    }
    return [v.length, ...Object.keys(v).map((k) => `${JSON.stringify(k)}=${inner(v[k])}`)];
  })();
  return `${kind}(${text})`;
}

const answer = (request) => new Promise((done, fail) => {
  request.onsuccess = () => done(request.result);
  request.onerror = (e) => { e.preventDefault(); fail(request.error); };
});

// nextKey returns what the key generator of a store gives out next.
async function nextKey(db, name) {
  const transaction = db.transaction(name, 'readwrite');
  const over = new Promise((done) => { transaction.onabort = transaction.oncomplete = done; });
  const store = transaction.objectStore(name);
  const key = await answer(store.add(store.keyPath === null ? 0 : {})).catch((e) => e.name);
  try { transaction.abort(); } catch {}
  await over;
  return key;
}

// stored returns a digest of each database, by its name.
async function stored() {
  const all = {};
  for (const { name } of await indexedDB.databases()) {
    const db = await answer(indexedDB.open(name));
    const text = [db.version];
    for (const objects of db.objectStoreNames) {
      const store = db.transaction(objects).objectStore(objects);
      const indexes = Array.from(store.indexNames, (i) => store.index(i));
      const lists = await Promise.all([store.getAllKeys(), store.getAll(),
        ...indexes.map((i) => i.getAllKeys())].map(answer));
      text.push(objects, describe(store.keyPath), store.autoIncrement, ...indexes.map((i) => (
        [i.name, describe(i.keyPath), i.unique, i.multiEntry])), ...lists.map((l) => describe(l)));
      if (store.autoIncrement) text.push(await nextKey(db, objects));
    }
    db.close();
    all[name] = hash(JSON.stringify(text));
  }
  return all;
}

// random returns a function of n that returns numbers below n.
function random(seed) {
  return (n) => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % n;
  };
}

const texts = ['', 'a', 'length', '\ud800', '\u0000', '"\\', '\u2028', '\u{1f600}', '__proto__', '\ufffe', '<script>'];
const views = [Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array, Float32Array,
  Float64Array, BigInt64Array, BigUint64Array, DataView];

function bytes(rnd, n) { return Uint8Array.from({ length: n }, () => rnd(256)).buffer; }

// value returns any value that a database can have and JSON can be made of.
function value(rnd, depth, above = []) {
  const kinds = depth ? 26 : 20;
  const inner = (self) => value(rnd, depth - 1, self ? [...above, self] : above);
  switch (rnd(kinds)) {
    case 0: return undefined;
    case 1: return null;
    case 2: return rnd(2) === 0;
    case 3: return rnd(1000) - 500;
    case 4: return [NaN, Infinity, -Infinity, -0, 0.1, 2 ** 53, 5e-324][rnd(7)];
    case 5: return [0n, -1n, 2n ** 70n][rnd(3)];
    case 6: case 7: case 8: return texts[rnd(texts.length)].repeat(1 + rnd(3));
    case 9: return 'x\u00e9\u20ac'.repeat(rnd(2000));
    case 10: return new Date([NaN, 0, -1, 8.64e15, 1.7e12][rnd(5)]);
    case 11: return new RegExp(['a', '[/]\\/\n', '(?<n>.)'][rnd(3)], ['', 'gi', 'su', 'y'][rnd(4)]);
    case 12: return bytes(rnd, rnd(20));
    case 13: case 14: return new views[rnd(views.length)](bytes(rnd, 8 * rnd(4)));
    case 15: return Object([true, 5, -0, 's', 7n][rnd(5)]);
    case 16: {
      const kind = [Error, TypeError, RangeError][rnd(3)];
      const error = Object.assign(new kind(texts[rnd(texts.length)]), { stack: `s${rnd(9)}` });
      if (depth && rnd(2)) error.cause = inner(error);
      return rnd(5) ? error : new DOMException(texts[rnd(texts.length)], ['AbortError', 'DataCloneError', 'x'][rnd(3)]);
    }
    case 17: return above.length ? above[rnd(above.length)] : {};
    case 18: return [];
    case 19: return {};
    case 20: {
      const list = [];
      for (let n = rnd(5); n; n--) list.push(inner(list));
      if (rnd(4) === 0) list[list.length + rnd(3)] = 1;
      if (rnd(6) === 0) list.named = inner(list);
      return list;
    }
    case 21: {
      const map = new Map();
      for (let n = rnd(4); n; n--) map.set(inner(map), inner(map));
      return map;
    }
    case 22: {
      const set = new Set();
      for (let n = rnd(4); n; n--) set.add(inner(set));
      return set;
    }
    default: {
      const all = {};
      for (let n = rnd(5); n; n--) {
        Object.defineProperty(all, texts[rnd(texts.length)] || String(rnd(3)),
          { value: inner(all), enumerable: true, configurable: true, writable: true });
      }
      return all;
    }
  }
}

// key returns a key of a record.
function key(rnd, depth = 1) {
  switch (rnd(depth ? 8 : 7)) {
    case 0: return rnd(1000) - 500;
    case 1: return [Infinity, -Infinity, 0.5, -0, 2 ** 53][rnd(5)];
    case 2: return new Date(rnd(1e9));
    case 3: return bytes(rnd, rnd(6));
    case 7: return Array.from({ length: rnd(4) }, () => key(rnd, depth - 1));
    default: return texts[rnd(texts.length)] + rnd(100);
  }
}

// make makes the database of a number, and returns its name.
async function make(seed, large) {
  const rnd = random(seed);
  const name = ['db', '', '__proto__', 'a b"\\', '\u20ac\u2028', 'length'][rnd(6)] + seed;
  const request = indexedDB.open(name, 1 + rnd(3) * rnd(1e9));
  const stores = Array.from({ length: rnd(4) }, (_, i) => texts[rnd(texts.length)].replace('\ud800', 's') + i);
  request.onupgradeneeded = () => {
    if (large) request.result.createObjectStore('large');
    for (const objects of stores) {
      const keyPath = [null, null, 'id', 'a.b', ['id', 'a.b'], ''][rnd(6)];
      const store = request.result.createObjectStore(objects,
        { keyPath, autoIncrement: !Array.isArray(keyPath) && keyPath !== '' && rnd(2) === 0 });
      if (rnd(2)) store.createIndex('by one', 'tags', { multiEntry: rnd(2) === 0 });
      if (rnd(2)) store.createIndex('by two', ['name', 'a.b'], { unique: rnd(3) === 0 });
    }
  };
  const db = await answer(request);
  for (const objects of stores) {
    for (let n = rnd(6); n; n--) {
      const transaction = db.transaction(objects, 'readwrite'), store = transaction.objectStore(objects);
      const over = new Promise((done) => { transaction.oncomplete = transaction.onabort = done; });
      let v = value(rnd, 3);
      if (store.keyPath === '') v = key(rnd);
      else if (store.keyPath !== null || rnd(2)) {
        v = { v, id: key(rnd), a: { b: key(rnd) }, tags: [key(rnd), key(rnd)], name: key(rnd) };
      }
      if (store.autoIncrement && store.keyPath === 'id') delete v.id;
      if (store.autoIncrement && store.keyPath === 'a.b') delete v.a.b;
      const add = async () => answer(store.add(v, ...store.keyPath === null && !(store.autoIncrement && rnd(3))
        ? [key(rnd)] : []));
      const at = await add().catch(() => undefined); // a key may be there already, or Chrome refuse the value
      if (at !== undefined && rnd(5) === 0) store.delete(at);
      await over;
    }
  }
  if (large) {
    const text = new Uint16Array(large).map(() => 0x20 + rnd(0x3000));
    const transaction = db.transaction('large', 'readwrite');
    transaction.objectStore('large').add({ text: new TextDecoder('utf-16').decode(text), bytes: text }, 1);
    await new Promise((done) => { transaction.oncomplete = done; });
  }
  db.close();
  return name;
}

// makeUnsaved makes a database that cannot be saved.
async function makeUnsaved() {
  const request = indexedDB.open('unsaved');
  request.onupgradeneeded = () => request.result.createObjectStore('s').add(new DOMRect(1, 2, 3, 4), 1);
  (await answer(request)).close();
}

// store replaces all that is stored for the origin.
async function store(items, seeds, unsaved) {
  localStorage.clear();
  for (const [name, value] of items) localStorage.setItem(name, value);
  for (const { name } of await indexedDB.databases()) await answer(indexedDB.deleteDatabase(name));
  for (const [seed, large] of seeds) await make(seed, large);
  if (unsaved) await makeUnsaved();
}

// inFrame evaluates an expression in the page's frame.
function inFrame(expression) {
  return new Promise((done) => {
    onmessage = (e) => done(e.data);
    frames[0].postMessage(expression, '*');
  });
}
if (top !== self) onmessage = async (e) => top.postMessage(await (0, eval)(e.data), '*');

const found = digest(localStorage), foundHere = digest(sessionStorage), foundStored = stored();
