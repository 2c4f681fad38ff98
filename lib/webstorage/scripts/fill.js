// Fills the storage of an origin in a blank document of it, as Playwright's
// storageState describes it, in read.js's form. What the storage has already stays.
// Returns what is not as described; "" if all is. Says no values.
async (o) => {
  if (location.origin !== o.origin) return `the page belongs to ${location.origin}`;
  const answer = (request) => new Promise((done, fail) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => fail(request.error);
    request.onblocked = () => fail({ name: 'Blocked' });
  });
  const arrays = {
    i8: Int8Array, ui8: Uint8Array, ui8c: Uint8ClampedArray, i16: Int16Array, ui16: Uint16Array, i32: Int32Array,
    ui32: Uint32Array, f16: globalThis.Float16Array, f32: Float32Array, f64: Float64Array, bi64: BigInt64Array,
    bui64: BigUint64Array, dv: DataView,
  };
  const define = (to, name, value) =>
    Object.defineProperty(to, name, { value, configurable: true, enumerable: true, writable: true });
  const bytes = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const special = { undefined, null: null, NaN, Infinity, '-Infinity': -Infinity, '-0': -0 };
  const decode = (v, refs = new Map()) => {
    if (typeof v !== 'object' || v === null) return v;
    const keep = (made) => (refs.set(v.id, made), made);
    if ('ref' in v) return refs.get(v.ref);
    if ('v' in v) return special[v.v];
    if ('d' in v) return new Date(v.d ?? NaN);
    if ('w' in v) return Object(decode(v.w));
    if ('u' in v) return new URL(v.u);
    if ('bi' in v) return BigInt(v.bi);
    if ('de' in v) return new DOMException(v.de.m, v.de.n);
    if ('e' in v) {
      const made = keep(Object.assign(new Error(v.e.m), { name: v.e.n, stack: v.e.s }));
      if ('c' in v.e) define(made, 'cause', decode(v.e.c, refs));
      return made;
    }
    if ('r' in v) return new RegExp(v.r.p, v.r.f);
    if ('ta' in v) return new arrays[v.ta.k](bytes(v.ta.b).buffer);
    if ('ab' in v) return bytes(v.ab.b).buffer;
    if ('a' in v) {
      const all = keep([]);
      for (const e of v.a) all.push(decode(e, refs));
      return all;
    }
    if ('o' in v) {
      const all = keep('n' in v ? new Array(v.n) : {});
      for (const e of v.o) define(all, e.k, decode(e.v, refs));
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
  const patience = 20_000; // ms
  // The browser has an item when it tells another document of the origin; this one
  // has it at once, and loses it if its process ends before.
  const store = async (items) => {
    const frame = document.createElement('iframe');
    document.documentElement.append(frame);
    const there = frame.contentWindow;
    const missing = new Set();
    let full, done;
    const complete = new Promise((resolve) => { done = resolve; });
    there.localStorage.length; // or it is told of nothing
    there.addEventListener('storage', (e) => missing.delete(e.key) && !missing.size && done());
    for (const [name, value] of items) {
      if (localStorage.getItem(name) !== null) continue;
      try {
        localStorage.setItem(name, value);
        missing.add(name);
      } catch (e) {
        full = e.name;
      }
    }
    if (missing.size) await Promise.race([complete, new Promise((resolve) => { setTimeout(resolve, patience); })]);
    frame.remove();
    if (full) why.push(`localStorage: ${full}`);
    if (missing.size) why.push(`localStorage: the browser has not taken ${missing.size} of ${items.size} items`);
  };
  const why = [];
  if (localStorage.length || (await indexedDB.databases()).length) why.push('a page of it was shown before');
  // A key generator goes on after the highest key that it has seen.
  const advance = async (objects, key) => {
    if (await answer(objects.count(key))) return;
    if (objects.keyPath === null) objects.add({}, key);
    else objects.add(objects.keyPath.split('.').reduceRight((inner, name) => define({}, name, inner), key));
    objects.delete(key);
  };
  try {
    await store(new Map(o.localStorage.map(({ name, value }) => [name, value])));
  } catch (e) {
    why.push(`localStorage: ${e.name}`);
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
        if (store.nextKey > 1) await advance(transaction.objectStore(store.name), store.nextKey - 1);
      }
      await complete;
    } catch (e) {
      why.push(`database ${JSON.stringify(info.name)}: ${e.name}`);
    } finally {
      db?.close();
    }
  }
  return why.join('; ');
}
