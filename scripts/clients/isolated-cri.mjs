// isolated-cri.mjs: chrome-remote-interface, which asks /json/list and connects
// to the pages' own WebSockets. It takes a host and a port, and a function that
// alters the paths is its way to a session.
import CDP from 'chrome-remote-interface';
import { equal, httpURL, own, page, rounds, step, who } from './isolated.mjs';

const { hostname: host, port, pathname } = new URL(httpURL);
const at = { host, port, useHostName: true, alterPath: (path) => (path.startsWith(pathname) ? path : pathname + path) };

await rounds(async (n) => {
  step('list');
  own((await CDP.List(at)).map((t) => t.url), '/json/list');
  step('new');
  const target = await CDP.New({ ...at, url: page('/page') });
  const client = await CDP({ ...at, target });
  await client.Page.enable();
  await client.Page.navigate({ url: page('/page') });
  await client.Page.loadEventFired();
  equal((await client.Runtime.evaluate({ expression: 'document.title' })).result.value, '/page', 'the page');
  own((await client.Target.getTargets()).targetInfos.map((t) => t.url), 'Target.getTargets');
  await client.close();
  step('browser');
  const browser = await CDP({ ...at, target: (await CDP.Version(at)).webSocketDebuggerUrl });
  own((await browser.Target.getTargets()).targetInfos.map((t) => t.url), 'Target.getTargets of the browser');
  await browser.close();
  step('close');
  await CDP.Activate({ ...at, id: target.id });
  await CDP.Close({ ...at, id: target.id });
  await (async () => {
    while ((await CDP.List(at)).some((t) => t.id === target.id)) await new Promise((done) => setTimeout(done, 20));
  })();
  equal((await CDP.Protocol(at)).version.major, '1', '/json/protocol');
});
