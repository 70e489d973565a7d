/** Calls functions on modules of frontend/src for Python: each line of JSON is a call, and is answered by a line. */
import { createInterface } from 'node:readline';
import { runInThisContext } from 'node:vm';

const SOURCES = new URL('../../frontend/src/', import.meta.url);

async function answer({ module, source, argument }) {
  try {
    const call = runInThisContext(`(${source})`);
    return { value: await call(await import(new URL(module, SOURCES)), argument) };
  } catch (error) {
    return { error: String(error?.stack ?? error) };
  }
}

for await (const line of createInterface({ input: process.stdin }))
  console.log(JSON.stringify(await answer(JSON.parse(line))));
