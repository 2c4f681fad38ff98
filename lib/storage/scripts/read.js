// Reads the storage of an origin in a blank document of it, into the form of
// Playwright's storageState. Returns its JSON and which databases are not in it,
// or why it cannot be read. Neither has values in it.
async ({ origin, max }) => {
  if (location.origin !== origin) return { error: `the page belongs to ${location.origin}` };
  const answer = (request) => new Promise((done, fail) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => fail(request.error);
  });
  const kinds = [[Int8Array, 'i8'], [Uint8Array, 'ui8'], [Uint8ClampedArray, 'ui8c'], [Int16Array, 'i16'],
    [Uint16Array, 'ui16'], [Int32Array, 'i32'], [Uint32Array, 'ui32'], [Float32Array, 'f32'], [Float64Array, 'f64'],
    [BigInt64Array, 'bi64'], [BigUint64Array, 'bui64']];
  const base64 = (b) => {
    let text = '';
    for (let i = 0; i < b.length; i += 4096) text += String.fromCharCode(...b.subarray(i, i + 4096));
    return btoa(text);
  };
  const plain = (v) => v === null || typeof v === 'string' || typeof v === 'boolean' ||
    typeof v === 'number' && Number.isFinite(v) && !Object.is(v, -0) ||
    Array.isArray(v) || typeof v === 'object' && v.constructor === Object;
  const encodeWith = (seen, state) => function encode(v) {
    if (!plain(v)) state.trivial = false;
    if (v === undefined || typeof v === 'function' || typeof v === 'symbol') return { v: 'undefined' };
    if (v === null) return { v: 'null' };
    if (typeof v === 'number' && (!Number.isFinite(v) || Object.is(v, -0))) return { v: Object.is(v, -0) ? '-0' : String(v) };
    if (typeof v === 'bigint') return { bi: String(v) };
    if (typeof v !== 'object') return v;
    if (v instanceof Error) return { e: { n: v.name, m: v.message, s: String(v.stack) } };
    if (v instanceof Date) return { d: v.toJSON() };
    if (v instanceof RegExp) return { r: { p: v.source, f: v.flags } };
    for (const [kind, k] of kinds) {
      if (v instanceof kind) return { ta: { b: base64(new Uint8Array(v.buffer, v.byteOffset, v.byteLength)), k } };
    }
    if (v instanceof ArrayBuffer) return { ab: { b: base64(new Uint8Array(v)) } };
    if (v instanceof Blob || v instanceof CryptoKey || v instanceof ImageData) throw { name: v.constructor.name };
    if (seen.has(v)) {
      state.trivial = false; // JSON has no references
      return { ref: seen.get(v) };
    }
    const id = seen.size + 1;
    seen.set(v, id);
    if (v instanceof Map) return { m: Array.from(v, ([k, e]) => ({ k: encode(k), v: encode(e) })), id };
    if (v instanceof Set) return { s: Array.from(v, encode), id };
    if (Array.isArray(v)) return { a: Array.from(v, encode), id };
    return { o: Object.keys(v).map((k) => ({ k, v: encode(v[k]) })), id };
  };
  const put = (record, name, v) => {
    const state = { trivial: true };
    const encoded = encodeWith(new Map(), state)(v);
    if (state.trivial) record[name] = v;
    else record[name + 'Encoded'] = encoded;
  };
  const keyPaths = ({ keyPath }) => (Array.isArray(keyPath) || keyPath instanceof DOMStringList
    ? { keyPathArray: [...keyPath] } : { keyPath: keyPath ?? undefined });
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
    } finally {
      db.close();
    }
    return { name, version, stores };
  };
  const state = { origin, localStorage: Object.keys(localStorage).map((name) => ({ name, value: localStorage.getItem(name) })) };
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
