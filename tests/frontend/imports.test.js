import { readdirSync, readFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { test } from 'node:test';
import assert from 'node:assert/strict';

const SOURCES = new URL('../../frontend/src/', import.meta.url).pathname;
/** From the bottom: a module imports modules of its own layer and of those before it. */
const LAYERS = ['lib', 'dom.js', 'charts', 'data', 'app', 'components', 'views', 'main.js', 'first_paint.js'];

/** The modules that each module imports when it runs; the types in its comments do not count. */
const importsOf = new Map(
  readdirSync(SOURCES, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.js'))
    .map((path) => {
      const code = readFileSync(join(SOURCES, path), 'utf8').replace(/\/\*[\s\S]*?\*\//g, '');
      const paths = [...code.matchAll(/(?:from|import) '(\.[^']+)'/g)].map(([, name]) =>
        resolve(SOURCES, path, '..', name),
      );
      return [path, paths.map((name) => relative(SOURCES, name)).filter((name) => !name.startsWith('..'))];
    }),
);

/** A circle of modules that import each other and that can be reached from a module; empty if there is none. */
function circleFrom(path, trail, acyclic) {
  if (trail.includes(path)) return [...trail.slice(trail.indexOf(path)), path];
  if (acyclic.has(path)) return [];
  for (const imported of importsOf.get(path)) {
    const circle = circleFrom(imported, [...trail, path], acyclic);
    if (circle.length) return circle;
  }
  acyclic.add(path);
  return [];
}

test('modules do not import each other in a circle', () => {
  assert.ok(importsOf.size > 100);
  const acyclic = new Set();
  for (const path of importsOf.keys()) assert.deepEqual(circleFrom(path, [], acyclic), []);
});

test('modules import nothing from a layer above theirs', () => {
  const heightOf = (path) => LAYERS.indexOf(path.split('/')[0]);
  for (const [path, paths] of importsOf) {
    assert.notEqual(heightOf(path), -1, `${path} is in no layer`);
    for (const imported of paths) assert.ok(heightOf(imported) <= heightOf(path), `${path} imports ${imported}`);
  }
});
