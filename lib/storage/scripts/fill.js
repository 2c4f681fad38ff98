// Fills the storage of an origin in a blank document of it, as Playwright's
// storageState describes it. Returns why it cannot; "" if it can. Says no values.
async (o) => {
  if (location.origin !== o.origin) return `the page belongs to ${location.origin}`;
  const answer = (request) => new Promise((done, fail) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => fail(request.error);
    request.onblocked = () => fail({ name: 'Blocked' });
  });
  const arrays = {
    i8: Int8Array, ui8: Uint8Array, ui8c: Uint8ClampedArray, i16: Int16Array, ui16: Uint16Array, i32: Int32Array,
    ui32: Uint32Array, f32: Float32Array, f64: Float64Array, bi64: BigInt64Array, bui64: BigUint64Array,
  };
  const bytes = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const special = { undefined, null: null, NaN, Infinity, '-Infinity': -Infinity, '-0': -0 };
  const decode = (v, refs = new Map()) => {
    if (typeof v !== 'object' || v === null) return v;
    const keep = (made) => (refs.set(v.id, made), made);
    if ('ref' in v) return refs.get(v.ref);
    if ('v' in v) return special[v.v];
    if ('d' in v) return new Date(v.d);
    if ('u' in v) return new URL(v.u);
    if ('bi' in v) return BigInt(v.bi);
    if ('e' in v) return Object.assign(new Error(v.e.m), { name: v.e.n, stack: v.e.s });
    if ('r' in v) return new RegExp(v.r.p, v.r.f);
    if ('ta' in v) return new arrays[v.ta.k](bytes(v.ta.b).buffer);
    if ('ab' in v) return bytes(v.ab.b).buffer;
    if ('a' in v) {
      const all = keep([]);
      for (const e of v.a) all.push(decode(e, refs));
      return all;
    }
    if ('o' in v) {
      const all = keep({});
      for (const e of v.o) if (e.k !== '__proto__') all[e.k] = decode(e.v, refs);
      return all;
    }
    if ('m' in v) {
      const all = keep(new Map());
      for (const e of v.m) all.set(decode(e.k, refs), decode(e.v, refs));
      return all;
    }
    if ('s' in v) {
      const all = keep(new Set());
      for (const e of v.s) all.add(decode(e, refs));
      return all;
    }
    return v;
  };
  const open = async (info) => {
    const request = indexedDB.open(info.name, info.version);
    request.onupgradeneeded = () => {
      for (const store of info.stores) {
        const made = request.result.createObjectStore(store.name,
          { autoIncrement: store.autoIncrement, keyPath: store.keyPathArray ?? store.keyPath });
        for (const index of store.indexes ?? []) {
          made.createIndex(index.name, index.keyPathArray ?? index.keyPath, { unique: index.unique, multiEntry: index.multiEntry });
        }
      }
    };
    return answer(request);
  };
  try {
    for (const { name, value } of o.localStorage) localStorage.setItem(name, value);
  } catch (e) {
    return `localStorage: ${e.name}`;
  }
  for (const info of o.indexedDB ?? []) {
    let db;
    try {
      db = await open(info);
      if (!info.stores.length) continue;
      const transaction = db.transaction(info.stores.map((store) => store.name), 'readwrite');
      const complete = new Promise((done, fail) => {
        transaction.oncomplete = done;
        transaction.onabort = () => fail(transaction.error ?? { name: 'AbortError' });
      });
      for (const store of info.stores) {
        for (const record of store.records) {
          const value = 'value' in record ? record.value : decode(record.valueEncoded);
          transaction.objectStore(store.name).add(value, 'key' in record ? record.key : decode(record.keyEncoded));
        }
      }
      await complete;
    } catch (e) {
      return `database ${JSON.stringify(info.name)}: ${e.name}`;
    } finally {
      db?.close();
    }
  }
  return '';
}
