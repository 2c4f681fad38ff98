// Reads the storage of an origin in a blank document of it, into the form of
// Playwright's storageState, with members of our own for values that it cannot
// describe: w, the value of an object such as new Number(1); n, the length of an
// array that has holes or names; c, the cause of an error; de, a DOMException; nextKey,
// what a key generator gives out next.
// Returns its JSON and which databases are not in it, or why it cannot be read.
// Neither has values in it.
async ({ origin, max, quiet }) => {
  if (location.origin !== origin) return { error: `the page belongs to ${location.origin}` };
  const answer = (request) => new Promise((done, fail) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => fail(request.error);
  });
  const kinds = [[Int8Array, 'i8'], [Uint8Array, 'ui8'], [Uint8ClampedArray, 'ui8c'], [Int16Array, 'i16'],
    [Uint16Array, 'ui16'], [Int32Array, 'i32'], [Uint32Array, 'ui32'], [Float32Array, 'f32'], [Float64Array, 'f64'],
    [BigInt64Array, 'bi64'], [BigUint64Array, 'bui64'], [DataView, 'dv']];
  if (globalThis.Float16Array) kinds.push([Float16Array, 'f16']);
  const base64 = (b) => {
    let text = '';
    for (let i = 0; i < b.length; i += 4096) text += String.fromCharCode(...b.subarray(i, i + 4096));
    return btoa(text);
  };
  const dense = (v) => { // a name makes up for a hole in the number of keys, and every() skips holes
    const keys = Object.keys(v);
    return keys.length === v.length && keys.every((k, i) => k === String(i));
  };
  const plain = (v) => v === null || typeof v === 'string' || typeof v === 'boolean' ||
    typeof v === 'number' && Number.isFinite(v) && !Object.is(v, -0) ||
    (Array.isArray(v) ? dense(v) : typeof v === 'object' && v.constructor === Object && !Object.hasOwn(v, '__proto__'));
  const encodeWith = (seen, state) => function encode(v) {
    if (!plain(v)) state.trivial = false;
    if (v === undefined || typeof v === 'function' || typeof v === 'symbol') return { v: 'undefined' };
    if (v === null) return { v: 'null' };
    if (typeof v === 'number' && (!Number.isFinite(v) || Object.is(v, -0))) return { v: Object.is(v, -0) ? '-0' : String(v) };
    if (typeof v === 'bigint') return { bi: String(v) };
    if (typeof v !== 'object') return v;
    if (v instanceof DOMException) return { de: { n: v.name, m: v.message } };
    const error = v instanceof Error && { n: v.name, m: v.message, s: String(v.stack) };
    if (error && !('cause' in v)) return { e: error };
    if (v instanceof Date) return { d: v.toJSON() };
    if (v instanceof RegExp) return { r: { p: v.source, f: v.flags } };
    if ([Boolean, Number, String, BigInt].some((kind) => v instanceof kind)) return { w: encode(v.valueOf()) };
    for (const [kind, k] of kinds) {
      if (v instanceof kind) return { ta: { b: base64(new Uint8Array(v.buffer, v.byteOffset, v.byteLength)), k } };
    }
    if (v instanceof ArrayBuffer) return { ab: { b: base64(new Uint8Array(v)) } };
    if (seen.has(v)) {
      state.trivial = false; // JSON has no references
      return { ref: seen.get(v) };
    }
    const id = seen.size + 1;
    seen.set(v, id);
    if (error) return { e: { ...error, c: encode(v.cause) }, id };
    if (v instanceof Map) return { m: Array.from(v, ([k, e]) => ({ k: encode(k), v: encode(e) })), id };
    if (v instanceof Set) return { s: Array.from(v, encode), id };
    if (Array.isArray(v) && dense(v)) return { a: Array.from(v, encode), id };
    const kind = Object.prototype.toString.call(v).slice(8, -1);
    if (kind !== 'Object' && kind !== 'Array') throw { name: kind }; // a Blob, a CryptoKey
    const members = { o: Object.keys(v).map((k) => ({ k, v: encode(v[k]) })), id };
    return kind === 'Array' ? { ...members, n: v.length } : members;
  };
  const put = (record, name, v) => {
    const state = { trivial: true };
    const encoded = encodeWith(new Map(), state)(v);
    if (state.trivial) record[name] = v;
    else record[name + 'Encoded'] = encoded;
  };
  const keyPaths = ({ keyPath }) => (Array.isArray(keyPath) || keyPath instanceof DOMStringList
    ? { keyPathArray: [...keyPath] } : { keyPath: keyPath ?? undefined });
  // The key that a store's generator gives out next: one too high if it has given out
  // all. A value that is no key is in no index, which could refuse it.
  const nextKey = async (db, name) => {
    const transaction = db.transaction(name, 'readwrite');
    const over = new Promise((done) => { transaction.onabort = done; });
    const objects = transaction.objectStore(name);
    try {
      const key = await answer(objects.add({}));
      transaction.abort();
      await over;
      return key;
    } catch (e) {
      await over;
      return e.name === 'ConstraintError' ? 2 ** 53 + 2 : undefined;
    }
  };
  const read = async ({ name, version }) => {
    const db = await answer(indexedDB.open(name));
    const stores = [];
    try {
      const names = [...db.objectStoreNames];
      const transaction = names.length ? db.transaction(names, 'readonly') : null;
      for (const name of names) {
        const store = transaction.objectStore(name);
        const [keys, values] = await Promise.all([answer(store.getAllKeys()), answer(store.getAll())]);
        const records = keys.map((key, i) => {
          const record = {};
          if (store.keyPath === null) put(record, 'key', key);
          put(record, 'value', values[i]);
          return record;
        });
        const indexes = [...store.indexNames].map((i) => store.index(i)).map((i) => (
          { name: i.name, ...keyPaths(i), multiEntry: i.multiEntry, unique: i.unique }));
        stores.push({ name, records, indexes, autoIncrement: store.autoIncrement, ...keyPaths(store) });
      }
      for (const store of stores) if (store.autoIncrement && !quiet) store.nextKey = await nextKey(db, store.name);
    } finally {
      db.close();
    }
    return { name, version, stores };
  };
  // Object.keys(localStorage) has no "length", nor other names of its own members.
  const names = Array.from({ length: localStorage.length }, (_, i) => localStorage.key(i));
  const state = { origin, localStorage: names.map((name) => ({ name, value: localStorage.getItem(name) })) };
  const all = [], lost = [];
  for (const info of await indexedDB.databases()) {
    try {
      all.push(await read(info));
    } catch (e) {
      lost.push(`database ${JSON.stringify(info.name)}: ${e.name}`);
    }
  }
  if (all.length) state.indexedDB = all;
  if (!state.localStorage.length && !all.length) return { lost };
  const text = JSON.stringify(state);
  return text.length > max ? { error: `it has more than ${max >> 20} MiB of storage` } : { text, lost };
}
